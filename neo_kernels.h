/* neo_kernels.h: the inner loops of neo.h, one text for every instruction set and for GPUs.

   Copy it beside neo.h, which includes it where it is implemented, once for each instruction set
   (>>isa of neo.h); neo_cuda.cuh includes it for GPUs. Programs do not. MIT licence (at the end of
   neo.h).

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_kernels.h is the map)
     >>kernel-types >>kernels >>kernels-math >>kernels-vec >>kernels-tensor >>kernels-gemm
     >>kernels-bags >>kernels-wire

   Stop here if you only want the API: this file adds nothing to it.
*/
#ifndef NEO_H
#error "neo_kernels.h is a part of neo.h: include neo.h"
#endif
#if !defined(NEO__PASS)

/* ---------------------------------------------------------------------------
   >>kernel-types

   What kernels work on, on every device: the arguments of calls whose shapes have been checked, and
   functions of single numbers. Read once, before the first target.
   ------------------------------------------------------------------------ */
/* Targets; see >>isa of neo.h. */
#define NEO__PASS_SCALAR 1
#define NEO__PASS_AVX2 2
#define NEO__PASS_AVX512 3
#define NEO__PASS_NEON 4
#define NEO__PASS_WARP 5 /* by neo_cuda.cuh */

/* A part of a leaf in a segment of k; see >>impl-gemm. */
typedef struct neo__gemm_piece {
    int32_t count;
    int32_t resume; /* goes on from what an earlier segment left in `slot` */
    int32_t slot;   /* subtree sums waiting */
    int32_t merges; /* of them, with this leaf: left + own, backwards */
    int32_t last;   /* the result is the whole sum */
} neo__gemm_piece;

/* A tile: up to `rows` rows by one panel of columns of a product, with its sums in registers from
   the first k to the last. Operands are read in place or packed: a[r * a_row + k * a_k], b[k * b_k
   + j]. */
typedef struct neo__tile {
    int64_t k;
    const float *a;
    int64_t a_row, a_k;
    const float *b;
    int64_t b_k;
    float *keep;         /* NULL, or where b is packed on the way: a single panel of 2 lanes, of
                            as many rows as the kernels have, or two less */
    int64_t b_col, b_cols; /* dots: b[k + j * b_col], j < b_cols; of fewer than dot_rows at the
                              end, those that lie before them are read, too */
    int64_t rows, panels, b_panel; /* so many panels (0: one), b_panel floats apart in b */
    const float *init;     /* sums start there; NULL: at zero */
    int64_t init_row;
    float *c;
    int64_t c_row;
    const neo__gemm_piece *piece; /* NULL, or what k consists of; then no panels, bias and relu */
    int64_t pieces;
    float *const *slot; /* sums that wait, with rows like init's; c is that of the last leaf only */
    const float *bias; /* then + bias; NULL: none */
    int relu;          /* then relu */
    int streams;       /* rows8: c goes past the caches */
    const uint16_t *at, *ends; /* listed: of row r the places at[r * at_row + ..], up to
                                  ends[r * ends_row], with init from the end before it on */
    int64_t at_row, ends_row;
    /* Operands and results of the next tiles, fetched ahead: a line per k, `fetch_step` apart,
       after every `fetch_count` k `fetch_row` behind the first of them; where panels are that wide
       also the line behind it; dots: b of as many columns, some columns further on; rows8: b, 32 k
       ahead. NULL: nothing. */
    const float *fetch;
    int64_t fetch_step, fetch_row, fetch_count;
} neo__tile;
typedef void (*neo__tile_fn)(const neo__tile *t);

enum {
    NEO__TILE_MAX_FLOATS = 512, /* rows x panel of any path */
    NEO__TURNED_FLOATS = 1 << 17, /* samples, packed: 512 KiB; and their sums, */
    NEO__TURNED_SUMS = 1 << 19,   /* up to one row of tiles more */
    NEO__TURNED_ROWS = 64,        /* of them are written at a time */
    NEO__INTERACT_MAX_FEATURES = 4095,
    NEO__INTERACT_FLOATS = 1 << 18 /* of the scratch; a quarter of that more for the factors */
};

/* Samples of the dot interaction; see >>impl-interact. */
typedef struct neo__interact_call {
    int backward;
    int64_t batch, dim, features, diagonal;
    const float *x, *e, *dz;
    float *z, *dx, *de;
    int64_t x_row, e_row, z_row, dz_row, dx_row, de_row;
} neo__interact_call;
/* Samples of a factorization machine: `cols` columns of a feature, the first `dim` its factors
   (aware: `dim` for each feature), the last its weight. */
typedef struct neo__fm_call {
    int backward, weighted, aware;
    int64_t batch, features, dim, cols;
    const float *e, *dy, *dv;
    float *y, *v, *de;
    int64_t e_row, v_row, dv_row, de_row;
} neo__fm_call;

struct neo__gemm_call;
struct neo__gemm_kernels {
    int rows;  /* of the largest tile */
    int lanes; /* a panel has 2 lanes columns; `lanes` where that is enough; 8 lanes for a single
                  row */
    const neo__tile_fn *tile1; /* [neo__tile_at(rows)]: lanes columns; 1, 2, 4, 6 .. rows rows, and
                                  13 where rows is 14 */
    const neo__tile_fn *tile2; /* 2 lanes columns */
    neo__tile_fn rows8;        /* t->panels of 8 lanes columns, t->rows rows, one after another; or
                                  NULL */
    neo__tile_fn listed;       /* 2 or 4 panels of 2 lanes, b_panel apart in b and bias, at places
                                  of k */
    /* at: the places where a [k] is not 0, of `depth` of them up to ends[0], of the next .. */
    void (*list)(uint16_t *at, const float *a, int64_t k, int64_t depth, uint16_t *ends);
    neo__tile_fn dots; /* any columns, dot_rows at a time, one row, a_k 1: b is read in place,
                          transposed; no merges, no bias, no relu */
    int dot_rows;
    /* to[k * width + j] = from[k * ld + j] for j < cols, 0 for cols <= j < width; k < rows */
    void (*pack)(float *to, int64_t width, const float *from, int64_t ld, int64_t rows,
                 int64_t cols);
    /* to[k * width + j] = from[j * ld + k], likewise */
    void (*pack_transposed)(float *to, int64_t width, const float *from, int64_t ld, int64_t rows,
                            int64_t cols);
    /* Columns [first, end) of c, an even number, by so many tiles; a_k and b_k are 1, beta is 0,
       and finish a relu at most. To the scratch go the samples, then the sums. */
    void (*turned)(const struct neo__gemm_call *call, int64_t first, int64_t end, int64_t tiles,
                   float *scratch);
    /* to[j] = the sum over rows, in order from 0, of from[row * ld + j]; j < cols */
    void (*column_sums)(float *to, const float *from, int64_t ld, int64_t rows, int64_t cols);
    void (*interact_forward)(const neo__interact_call *job, int64_t sample, float *scratch);
    void (*interact_backward)(const neo__interact_call *job, int64_t sample, float *scratch);
};

/* A tile of a bf16 product: c[r * cols + j] += a b over `blocks` blocks of 32 k; see >>impl-bf16.
   Words of 32 bits stand in the place of floats: a number as f32, or a pair of bf16. */
typedef struct neo__bf16_tile {
    const struct neo__gemm_kernels *f32; /* for those who use them, */
    void (*add)(float *y, const float *x, int64_t n);
    int rows, cols;               /* and the size of the tile */
    int first;                    /* c counts as zeros, or is */
    int64_t blocks;
    const float *a; /* word w of row r: a[r * a_row + w * a_word] */
    int64_t a_row, a_word;
    const float *b; /* word w of column j: b[w * cols + j] */
    float *c;
} neo__bf16_tile;
/* Kernels by instructions that multiply bf16. A block of 32 k is 16 words of pairs. */
typedef struct neo__bf16_kernels {
    int rows, cols; /* of a tile */
    int chains;     /* pairs are of one chain: see the kernels. Else a_word must be 1 */
    /* The words of `count` numbers; zeros fill up the last block. */
    void (*pack_row)(float *to, const uint16_t *from, int64_t count, int chains);
    /* to[w * width + j]: of k in [0, count) at from[k * ld + j] for j < cols; zeros up to width (a
       multiple of 16) and to the end of the last block. */
    void (*pack)(float *to, int64_t width, const uint16_t *from, int64_t ld, int64_t count,
                 int64_t cols, int chains);
    void (*begin)(void); /* on a thread, before calls of tile; or NULL */
    void (*tile)(const neo__bf16_tile *t); /* denormals are flushed */
    void (*end)(void);
} neo__bf16_kernels;
/* Sums have one shape: NEO__BLOCK consecutive elements go to 16 lanes (element i to lane i % 16),
   each lane adds in order, the lanes add by the tree of NEO__TREE16; blocks add in order. */
enum { NEO__BLOCK = 256 };
/* Keys of a tile of attention, and queries: a multiple of the columns of any panel. */
enum { NEO__KEYS = 64 };

/* FTRL; inverse: 1/lr, finite. */
typedef struct neo__ftrl {
    float lr, inverse, beta, l1, l2;
} neo__ftrl;
NEO__INLINE neo__ftrl neo__ftrl_make(float lr, float beta, float l1, float l2) {
    const double inverse = lr != 0.0f ? 1.0 / (double)lr : (double)FLT_MAX;
    const neo__ftrl ftrl = {lr, (float)NEO__MIN(inverse, (double)FLT_MAX), beta, l1, l2};
    return ftrl;
}
/* The numbers of one optimizer step, each computed once in double and rounded to f32 (see
   >>impl-optim). */
typedef struct neo__step {
    float clip;                /* the gradient is multiplied by this first; 1: no clipping */
    float lr;                  /* Adagrad: lr/(1 + (t - 1) lr_decay); LAMB: lr times trust ratio */
    float weight_decay;        /* w times this is added to the gradient (LAMB: to the direction) */
    float keep;                /* AdamW: w is multiplied by this, 1 - lr weight_decay; else 1 */
    float momentum, undamped;  /* SGD; undamped = 1 - dampening */
    float rest1, beta2, rest2; /* Adam: rest = 1 - beta */
    float unbias1;             /* Adam: lr/(1 - beta1^t); LAMB: the same without lr */
    float root_unbias2;        /* Adam: sqrt(1 - beta2^t) */
    float eps;
    int first, nesterov;       /* SGD; first: there is no momentum buffer yet */
    neo__ftrl ftrl;
} neo__step;

/* Elementwise work on contiguous f32, n >= 0; any alignment. An output may be one of the inputs,
   never a shifted overlap. */
struct neo__vec_kernels {
    void (*add)(float *y, const float *x, int64_t n); /* y += x */
    void (*mul)(float *y, const float *x, int64_t n); /* y *= x */
    /* out = base + y z; base NULL: y z */
    void (*addcmul)(const float *base, const float *y, const float *z, float *out, int64_t n);
    float (*dot)(const float *x, const float *y, int64_t n);
    float (*fm)(const neo__fm_call *call, int64_t sample); /* returns y */
    void (*fm_back)(const neo__fm_call *call, int64_t sample);
    void (*act_forward)(neo_activation act, const float *z, float *y, int64_t n);
    void (*act_backward)(neo_activation act, const float *z, const float *y, const float *dy,
                         float *dz, int64_t n);

    /* The first element outside [low, high] (a NaN is), or n. */
    int64_t (*find_outside)(const float *x, float low, float high, int64_t n);
    /* Losses of n samples and, unless dx is NULL, their gradients times g; weight may be NULL. */
    void (*bce_logits)(const float *x, const float *y, const float *weight, float g, float *loss,
                       float *dx, int64_t n);
    void (*bce)(const float *x, const float *y, const float *weight, float g, float *loss,
                float *dx, int64_t n);
    void (*mse)(const float *x, const float *y, const float *weight, float g, float *loss,
                float *dx, int64_t n);
    /* One sample of n outputs: returns the sum of squares; dx = (x - y) g unless NULL. */
    float (*mse_row)(const float *x, const float *y, float g, float *dx, int64_t n);
    /* Returns sum of e^(x - max); *max; e = e^(x - max) unless NULL. */
    float (*softmax_row)(const float *x, float *max, float *e, int64_t n);
    void (*softmax_grad)(float *e, float sum, float g, int64_t n); /* e = e/sum g */
    void (*softmax_slope)(const float *x, float max, float sum, float g, float *to,
                          int64_t n); /* the same of x: to = e^(x - max)/sum g */

    /* One row of a layer norm (stats: mean, 1/deviation) or, not centered, an RMS norm (stats:
       1/rms): returns the last of stats, and the mean; y, of a part of the row; dx (which may be
       dy); what it adds to dw and db. w, b, dw, db may be NULL. */
    float (*norm_stats)(const float *x, float eps, int centered, float *mean, int64_t n);
    void (*norm_apply)(const float *x, const float *w, const float *b, float mean, float scale,
                       float *y, int64_t n);
    void (*norm_backward)(const float *x, const float *w, const float *dy, const float *stats,
                          int centered, float *dx, int64_t n);
    void (*norm_add)(const float *x, const float *dy, const float *stats, int centered, float *dw,
                     float *db, int64_t n);
    /* One query against a tile of keys, n <= NEO__KEYS of which it sees: s, their products, becomes
       e^(s scale - max), 0 from n on. *max, *sum and out [dim] are those of the tiles before,
       brought to the new maximum; *sum then holds the tile too. */
    void (*softmax_tile)(float *s, int64_t n, float scale, float *max, float *sum, float *out,
                         int64_t dim);
    /* After the last tile: out is divided by sum; returns the logarithm of the denominator. */
    float (*softmax_end)(float *out, float max, float sum, int64_t dim);
    /* A tile backward: s becomes p = e^(s scale - lse), dp becomes p (dp - delta) scale; 0 from n
       on. */
    void (*softmax_tile_grad)(float *s, float *dp, int64_t n, float scale, float lse, float delta);
    /* The same of SiLU, in both directions: s becomes p = silu(s scale) share, dp, unless NULL,
       dp silu'(s scale) slope. */
    void (*silu_tile)(float *s, float *dp, int64_t n, float scale, float share, float slope);

    /* Sum of |x|, sum of squares, largest |x| (a NaN above all) of one block, n <= NEO__BLOCK. */
    float (*block_abs)(const float *x, int64_t n);
    float (*block_square)(const float *x, int64_t n);
    float (*block_max)(const float *x, int64_t n);

    /* One step of n elements for each neo_optim_kind: weights w, gradients g, states a and b (NULL:
       there is none). LAMB: new moments; square sum of the direction in one block; `step` is the
       move along it. */
    void (*step[NEO_OPTIM_COUNT])(const neo__step *s, float *w, const float *g, float *a, float *b,
                                  int64_t n);
    void (*lamb_moments)(const neo__step *s, const float *g, float *m, float *v, int64_t n);
    float (*lamb_square)(const neo__step *s, const float *w, const float *m, const float *v,
                         int64_t n);
};
/* A stream of random blocks; block i is philox(seed, (i, h)). */
typedef struct neo__random_key {
    uint64_t seed, h;
} neo__random_key;

/* The rows of a table in memory. Element (row, column) has number first + row * stride + column in
   the larger table, by which it is rounded. */
typedef struct neo__bag_rows {
    neo_dtype dtype;
    char *data;
    float *scale; /* of i8: [rows][2], scale and bias */
    int64_t dim, row_bytes;
    uint64_t first, stride;
    const uint64_t *line_row; /* not NULL: row numbers are those of lines, which hold these rows */
} neo__bag_rows;
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_row_of(const neo__bag_rows *t, int64_t row) {
    return t->line_row ? (int64_t)t->line_row[row] : row;
}
/* The number of a row's first element, and how many random blocks its elements are in. */
NEO__EVERYWHERE NEO__INLINE uint64_t neo__bag_number(const neo__bag_rows *t, int64_t row) {
    return t->first + (uint64_t)neo__bag_row_of(t, row) * t->stride;
}
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_blocks_of(const neo__bag_rows *t, int64_t row) {
    return ((int64_t)(neo__bag_number(t, row) % 4) + t->dim + 3) / 4;
}

/* A run of bags of one feature, to look up. Offsets start at its first bag; ids and weights are
   indexed by them. next_*: the lookup that follows, whose first rows are fetched ahead. */
typedef struct neo__bag_lookup {
    const neo__bag_rows *store;
    const float *table; /* the rows if they are f32, or NULL */
    int64_t rows, dim;
    const void *ids;
    int is_i32;
    const float *weights; /* or NULL */
    const int64_t *offsets;
    int64_t bags, ahead; /* ahead: of neo__bags_fetch_ahead */
    float *out;          /* of the first bag; NEO_POOL_NONE: of the first id */
    int64_t out_stride;
    const float *dout; /* of weight_grad, with out_stride */
    int mean, pooled;  /* pooled 0: NEO_POOL_NONE */
    neo_bounds bounds;
    int inside;      /* all ids are, for sure */
    int32_t buckets; /* of the table whose rows from first_row on these are */
    int64_t bucket_rows, first_row;
    double bucket_shift, bucket_scale; /* row id is in bucket (id + shift) scale, rounded down */
    const neo__bag_rows *next_store;
    int64_t next_id, next_count;
} neo__bag_lookup;
/* The bucket of a row. Floating point finds it where its error, 2^-38 for numbers of 12 bits, is
   below the distance to the next bucket, half a row. */
NEO__INLINE int neo__bag_bucket_is_scaled(const neo__bag_lookup *a) {
    return a->bucket_rows < INT64_C(1) << 36;
}
NEO__INLINE int64_t neo__bag_bucket_of_row(const neo__bag_lookup *a, int64_t id) {
    return neo__bag_bucket_is_scaled(a)
               ? (int64_t)(((double)id + a->bucket_shift) * a->bucket_scale)
               : neo__bucket_of(a->bucket_rows, a->buckets, id + a->first_row);
}
NEO__INLINE int64_t neo__bag_bucket(const neo__bag_lookup *a, int64_t id) {
    return neo__bag_bucket_of_row(a, neo__bag_row_of(a->store, id));
}

/* Rows fetched ahead of their use: far enough to cover memory, not so far that they leave the
   cache; twice as many where bags are long, as few branches then end what the processor looks
   ahead. They go to the second level, which has more lines on their way at a time than the first:
   many more are then fetched per second. */
NEO__UNUSED static int64_t neo__bags_fetch_ahead(const neo__bag_lookup *a) {
    const int64_t bytes = a->store->row_bytes, ids = a->offsets[a->bags] - a->offsets[0];
    const int64_t rows = bytes <= 64 ? 48 : bytes <= 128 ? 32 : bytes <= 256 ? 24
                         : bytes <= 512 ? 16 : 8;
    return ids >= (a->buckets > 1 ? 8 : 4) * a->bags ? 2 * rows : rows;
}
/* The same where a row takes more work: the processor itself then looks less far ahead. */
NEO__INLINE int64_t neo__bags_far_ahead(const neo__bag_lookup *a) { return a->ahead * 5 / 3; }

/* Whether buckets change no sum: there is one; or ids have no weights, which may leave -0, which
   buckets make 0, and all rows are in one, or bags have at most two. */
NEO__UNUSED static int neo__bags_are_plain(const neo__bag_lookup *a) {
    int64_t most = 0;
    if (a->buckets == 1 || a->weights) return a->buckets == 1;
    for (int64_t b = 0; b < a->bags && most <= 2; b++)
        most = NEO__MAX(most, a->offsets[b + 1] - a->offsets[b]);
    return most <= 2 || (!a->store->line_row && neo__bag_bucket_of_row(a, 0) ==
                                                    neo__bag_bucket_of_row(a, a->rows - 1));
}

/* The tree over parts with rising numbers (leaves of a batch, buckets of rows) of which some may
   be absent: a stack of sums of n floats, stride apart. Two neighbours join before a later part is
   pushed when their subtree ends before it: when the highest bit in which their numbers differ is
   lower. */
enum { NEO__PART_DEPTH = 14 }; /* for numbers below 4096: one level per bit, and one */
enum { NEO__POOL_BUCKETS = 64 };  /* at most so many have a sum each, while a bag is looked up */
typedef struct neo__part_tree {
    float *sum; /* [NEO__PART_DEPTH][stride] */
    int64_t n, stride;
    int64_t number[NEO__PART_DEPTH];
    int depth;
} neo__part_tree;
enum { NEO__POOL_IDS = 128 };     /* of at most so many ids the buckets are found ahead */
enum { NEO__POOL_HALVES = 80 };   /* at most so many ids have two passes over wide narrow rows */
/* Some bags that are looked up together. Slots are those of a bag: its buckets. An id has a row, or
   -1 if it is not summed, the slot where it adds, and an id so far ahead, of which the row is
   fetched; the rows and those ids are the batch's ids, or copies. */
typedef struct neo__bag_some {
    int64_t b, b_end, slots;
    int64_t apart; /* slots from bag to bag: one more, as sums 4 KiB apart are slow */
    int known; /* 0: more ids than NEO__POOL_IDS, or more buckets: some at a time */
    int64_t ahead;
    const int64_t *row, *next;
    int64_t rows[NEO__POOL_IDS], nexts[NEO__POOL_IDS];
    int32_t slot[NEO__POOL_IDS + 16];
} neo__bag_some;
/* Whether the two parts on top of a stack join before part `next` is pushed. */
NEO__EVERYWHERE NEO__INLINE int neo__part_joins(const int64_t *number, int depth, int64_t next) {
    return depth >= 2 && neo__tree_level(number[depth - 2], number[depth - 1]) <
                             neo__tree_level(number[depth - 1], next);
}
/* Joins the sums of parts that are whole before part `next` begins, INT64_MAX: all; sums are `room`
   floats apart, of dim numbers. Returns how many there are then. */
NEO__UNUSED static int neo__parts_join(int64_t *number, int depth, int64_t next, float *sums,
                                       int64_t room, int64_t dim) {
    while (next == INT64_MAX ? depth > 1 : neo__part_joins(number, depth, next)) {
        depth--;
        number[depth - 1] = number[depth];
        float *to = sums + (depth - 1) * room;
        for (int64_t c = 0; c < dim; c++) to[c] += to[room + c];
    }
    return depth;
}
/* The last v with leaf[v] <= low. */
NEO__EVERYWHERE NEO__INLINE int neo__leaf_of(const int64_t *leaf, int leaf_count, int64_t low) {
    int v = 0;
    for (int n = leaf_count; n > 1;) {
        int half = n / 2;
        if (leaf[v + half] <= low) v += half, n -= half;
        else n = half;
    }
    return v;
}
NEO__EVERYWHERE NEO__INLINE int64_t neo__jagged_id(const void *ids, int is_i32, int64_t k) {
    return is_i32 ? (int64_t)((const int32_t *)ids)[k] : ((const int64_t *)ids)[k];
}
/* The numbers of one optimizer step, resolved for one table: see >>bag-optim. */
typedef struct neo__bag_step {
    neo_bag_optim_kind kind;
    int adjusts; /* clip, L2 or decoupled decay */
    float lr, clip, l2, keep, decay, eps, beta1, beta2, rest1, rest2, fix1, fix2, momentum, eta,
        max_norm;
    neo__ftrl ftrl;
} neo__bag_step;

/* Rows merged before they are stepped, so that the latencies of several overlap: as many as stay
   close. */
enum { NEO__BAG_GROUP = 16 };
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_group(int64_t dim) {
    int64_t rows = 4096 / dim;
    return rows < 1 ? 1 : rows > NEO__BAG_GROUP ? (int64_t)NEO__BAG_GROUP : rows;
}
/* Floats in which a narrow row is decoded, stepped and rounded: the row, filled up to 16s, and the
   random words of a group of rows, of which the last may be a vector of blocks. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_room(int64_t dim) { return (dim + 15) / 16 * 16; }
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_narrow_scratch(neo_dtype dtype, int64_t dim) {
    return dtype == NEO_F32 ? 0 : neo__bag_room(dim) + neo__bag_group(dim) * (dim + 8) + 96;
}
/* Blocks of 16 columns, along which rows are summed. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_blocks(int64_t dim) { return (dim + 15) / 16; }
/* A group and one row; or the gradient, direction, weights and moments of a row of a cut table. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_scratch(int64_t dim) {
    int64_t rows = neo__bag_group(dim) + 1;
    return (rows < 5 ? 5 : rows) * dim;
}

/* Sorted occurrences of one table, to merge per row and apply. A record is row << low_bits | low;
   low is a row of grad, or (grad_row given) an index into grad_row and grad_weight. leaf[v] is the
   first low of leaf v. Records begin and end at row boundaries. */
typedef struct neo__bag_update {
    const uint64_t *records;
    int64_t count;
    int low_bits;
    const float *grad;
    int64_t grad_stride;
    const int64_t *grad_row;  /* or NULL */
    const float *grad_weight; /* or NULL: ones */
    const int64_t *leaf;      /* [leaf_count + 1] */
    int leaf_count;
    const neo__bag_rows *store;
    float *weight, *state[2];  /* weight: the rows if they are f32, or NULL */
    int64_t dim, state_dim[2]; /* floats per row: dim or 1 */
    neo__bag_step step;
    const neo__random_key *round; /* of narrow rows; NULL: to nearest */
    int fetch_grads; /* gradient rows may be far from the cache */
    float *scratch;  /* neo__bag_scratch(dim) floats, and neo__bag_narrow_scratch() */
    /* Not a step but a sum that is kept: that of the row whose first record is i goes to keep_to +
       (keep_at[i] >> 1), added to what is there unless the lowest bit is set. */
    const int64_t *keep_at; /* or NULL */
    float *keep_to;
} neo__bag_update;

/* A step of rows of which only some columns are here. It asks for sums over whole rows in a fixed
   order; the first `have` are given. With want > 0 nothing changes: the next `want` are computed
   over the columns here, block by block. One record is one row. */
typedef struct neo__bag_cut {
    int have, want;
    float dim;          /* of the whole row */
    const float *total; /* [have][rows]: of record 0 */
    float *blocks;      /* [want][rows][blocks]: of record 0 */
    int64_t rows, blocks_per_row;
} neo__bag_cut;

struct neo__bag_kernels {
    void (*pool)(const neo__bag_lookup *a);         /* all ids are inside, one bucket */
    void (*pool_any)(const neo__bag_lookup *a);     /* bounds policy, row buckets */
    void (*copy)(const neo__bag_lookup *a);         /* NEO_POOL_NONE */
    void (*weight_grad)(const neo__bag_lookup *a, float *dweights); /* dweights of the first id */
    /* to[b] = from[b], divided by the length of bag b if offsets is given; empty bags are left
       out */
    void (*pack)(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                 int64_t bags, int64_t dim, const int64_t *offsets);
    void (*update)(const neo__bag_update *u);
    void (*update_cut)(const neo__bag_update *u, const neo__bag_cut *cut);
    /* out[i] = the sum over block i of 16 columns of x y */
    void (*blocks)(const float *x, const float *y, int64_t n, float *out);
    /* Narrow rows: columns [col, col + n) of a row to f32, and a row from f32. w has
       neo__bag_room(dim) floats; word: the random blocks its elements are in, NULL: to nearest. */
    void (*decode)(const neo__bag_rows *t, int64_t row, int64_t col, int64_t n, float *to);
    void (*encode)(const neo__bag_rows *t, int64_t row, float *w, const float *word);
    /* The lines of many keys, as neo__lines_find; returns how many have none. touches: their use is
       asked for, too. */
    int64_t (*find)(const neo__lines *lines, const uint64_t *keys, int64_t count, int64_t now,
                    int touches, int64_t *to);
};
/* ---- narrow floats and random numbers: scalar forms, and the tensor kernels' table ---- */

/* f16 and bf16, nearest even. A NaN keeps its sign and upper payload bits and becomes quiet, as
   the processors' own conversions do. */
NEO__EVERYWHERE NEO__INLINE uint16_t neo__f16_from_f32(float x) {
    uint32_t u = neo__bits_f32(x), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x3FFu));
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7C00u); /* 2^16 and more */
    /* below 2^-14: in [0.5, 1) a float's last place is f16's denormal unit */
    if (a < 0x38800000u)
        return (uint16_t)(sign | (neo__bits_f32(neo__f32_bits(a) + 0.5f) - 0x3F000000u));
    return (uint16_t)(sign | (a - 0x38000000u + 0xFFFu + (a >> 13 & 1u)) >> 13);
}
NEO__EVERYWHERE NEO__INLINE float neo__f32_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7FFFu;
    if (a > 0x7C00u) return neo__f32_bits(sign | 0x7FC00000u | a << 13);
    if (a == 0x7C00u) return neo__f32_bits(sign | 0x7F800000u);
    if (a >= 0x400u) return neo__f32_bits(sign | ((a << 13) + 0x38000000u));
    return neo__f32_bits(sign | neo__bits_f32((float)a * 0x1p-24f));
}
NEO__EVERYWHERE NEO__INLINE uint16_t neo__bf16_from_f32(float x) {
    uint32_t u = neo__bits_f32(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
NEO__EVERYWHERE NEO__INLINE float neo__f32_from_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    return neo__f32_bits((u & 0x7FFFFFFFu) > 0x7F800000u ? u | 0x400000u : u);
}

/* A binary format narrower than f32: `man` stored bits of significand, smallest normal exponent
   emin; `top` is the code that overflow gives (infinity, or the largest finite number). */
typedef struct neo__narrow {
    int man, emin;
    uint32_t top, nan;
    int shift; /* of the sign bit from its place in f32 */
} neo__narrow;
/* The magnitude of x in units of the format's last place is a fixed-point number with 32 bits of
   fraction. Nearest even adds just under or exactly one half; stochastic rounding adds 32 random
   bits, so that x goes up with the probability of its remainder. A carry runs into the exponent by
   itself. */
NEO__EVERYWHERE NEO__INLINE uint32_t neo__narrow_encode(const neo__narrow *narrow, float x,
                                                        int stochastic, uint32_t random) {
    uint32_t u = neo__bits_f32(x), a = u & 0x7FFFFFFFu;
    uint32_t sign = (u & 0x80000000u) >> narrow->shift;
    if (a > 0x7F800000u) return sign | narrow->nan;
    if (a == 0x7F800000u) return sign | narrow->top;
    int e = a >> 23 ? (int)(a >> 23) : 1;
    uint64_t m = (a & 0x7FFFFFu) | (a >> 23 ? 0x800000u : 0u); /* |x| = m 2^(e - 150) */
    int unit = NEO__MAX(e - 127, narrow->emin);
    int drop = unit - narrow->man - (e - 150);
    uint64_t fixed = drop < 64 ? m << 32 >> drop : 0;
    uint64_t code = (fixed + (stochastic ? random : 0x7FFFFFFFu + (fixed >> 32 & 1u))) >> 32;
    code += (uint64_t)(unit - narrow->emin) << narrow->man;
    return sign | (code > narrow->top ? narrow->top : (uint32_t)code);
}
NEO__EVERYWHERE NEO__INLINE float neo__f32_from_e5m2(uint8_t c) {
    return neo__f32_from_f16((uint16_t)(c << 8));
}
NEO__EVERYWHERE NEO__INLINE float neo__f32_from_e4m3(uint8_t c) {
    uint32_t sign = (uint32_t)(c & 0x80u) << 24, a = c & 0x7Fu;
    if (a == 0x7Fu) return neo__f32_bits(sign | 0x7FC00000u);
    if (a >= 8u) return neo__f32_bits(sign | ((a << 20) + 0x3C000000u));
    return neo__f32_bits(sign | neo__bits_f32((float)a * 0x1p-9f));
}

/* Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). */
#define NEO__PHILOX_M0 0xD2511F53u
#define NEO__PHILOX_M1 0xCD9E8D57u
#define NEO__PHILOX_W0 0x9E3779B9u
#define NEO__PHILOX_W1 0xBB67AE85u
NEO__EVERYWHERE NEO__INLINE uint64_t neo__mul_wide(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) /* one instruction, where a product of 64 bits adds halves that are 0 */
    uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
#else
    return (uint64_t)a * b;
#endif
}
NEO__EVERYWHERE NEO__INLINE void neo__philox(uint32_t key0, uint32_t key1, uint32_t x[4]) {
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = neo__mul_wide(x[0], NEO__PHILOX_M0), p1 = neo__mul_wide(x[2], NEO__PHILOX_M1);
        x[0] = (uint32_t)(p1 >> 32) ^ x[1] ^ key0;
        x[2] = (uint32_t)(p0 >> 32) ^ x[3] ^ key1;
        x[1] = (uint32_t)p1;
        x[3] = (uint32_t)p0;
        key0 += NEO__PHILOX_W0;
        key1 += NEO__PHILOX_W1;
    }
}
NEO__EVERYWHERE NEO__INLINE neo__random_key neo__random_key_make(uint64_t seed, uint64_t name_hash,
                                                                 int64_t step, int stream) {
    neo__random_key key;
    key.seed = seed;
    key.h = neo__mix64(name_hash + 0x9E3779B97F4A7C15u * ((uint64_t)stream + 1));
    key.h = neo__mix64(key.h + (uint64_t)step);
    return key;
}
NEO__EVERYWHERE NEO__INLINE void neo__random_block(const neo__random_key *key, uint64_t block,
                                                   uint32_t out[4]) {
    out[0] = (uint32_t)block;
    out[1] = (uint32_t)(block >> 32);
    out[2] = (uint32_t)key->h;
    out[3] = (uint32_t)(key->h >> 32);
    neo__philox((uint32_t)key->seed, (uint32_t)(key->seed >> 32), out);
}

/* Rounded to an integer within int64; a NaN gives 0. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__int_from_f32(float x, int stochastic, uint32_t random) {
    if (!(x == x)) return 0;
    if (x >= 0x1p63f) return INT64_MAX;
    if (x <= -0x1p63f) return INT64_MIN;
    int64_t whole = (int64_t)x; /* towards zero */
    double rest = (double)x - (double)whole;
    if (rest < 0.0) {
        whole--;
        rest += 1.0;
    }
    if (stochastic) return whole + (rest * 0x1p32 > (double)random);
    return whole + (rest > 0.5 || (rest == 0.5 && (whole & 1)));
}
/* Rounded to odd: kept exact, or between its neighbours with the last bit set, so that rounding
   once more to a narrower float rounds correctly. */
NEO__EVERYWHERE NEO__INLINE float neo__f32_from_int_odd(int64_t x) {
    uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    uint64_t sticky = 0;
    float scale = 1.0f;
    for (; a >> 24; a >>= 1, scale *= 2.0f) sticky |= a & 1;
    float value = (float)(a | sticky) * scale;
    return x < 0 ? -value : value;
}

/* ---- an element of any dtype ---- */
NEO__EVERYWHERE NEO__INLINE int neo__is_float(neo_dtype t) { return t <= NEO_F8E5M2; }
NEO__EVERYWHERE NEO__INLINE float neo__float_decode(neo_dtype t, const void *p) {
    switch (t) {
    case NEO_F16: return neo__f32_from_f16(*(const uint16_t *)p);
    case NEO_BF16: return neo__f32_from_bf16(*(const uint16_t *)p);
    case NEO_F8E4M3: return neo__f32_from_e4m3(*(const uint8_t *)p);
    case NEO_F8E5M2: return neo__f32_from_e5m2(*(const uint8_t *)p);
    default: return *(const float *)p;
    }
}
/* To nearest if random is NULL. */
NEO__EVERYWHERE NEO__INLINE void neo__float_encode(neo_dtype t, float x, void *p,
                                                   const uint32_t *random) {
    const neo__narrow f16 = {10, -14, 0x7C00u, 0x7E00u, 16};
    const neo__narrow bf16 = {7, -126, 0x7F80u, 0x7FC0u, 16};
    const neo__narrow e4m3 = {3, -6, 0x7Eu, 0x7Fu, 24}, e5m2 = {2, -14, 0x7Cu, 0x7Eu, 24};
    const int up = random != NULL;
    const uint32_t r = up ? *random : 0;
    switch (t) {
    case NEO_F16:
        *(uint16_t *)p = up ? (uint16_t)neo__narrow_encode(&f16, x, 1, r) : neo__f16_from_f32(x);
        break;
    case NEO_BF16:
        *(uint16_t *)p = up ? (uint16_t)neo__narrow_encode(&bf16, x, 1, r) : neo__bf16_from_f32(x);
        break;
    case NEO_F8E4M3: *(uint8_t *)p = (uint8_t)neo__narrow_encode(&e4m3, x, up, r); break;
    case NEO_F8E5M2: *(uint8_t *)p = (uint8_t)neo__narrow_encode(&e5m2, x, up, r); break;
    default: *(float *)p = x; break;
    }
}
NEO__EVERYWHERE NEO__INLINE int64_t neo__int_decode(neo_dtype t, const void *p) {
    switch (t) {
    case NEO_I8: return *(const int8_t *)p;
    case NEO_U8: return *(const uint8_t *)p;
    case NEO_I32: return *(const int32_t *)p;
    default: return *(const int64_t *)p;
    }
}
NEO__EVERYWHERE NEO__INLINE int64_t neo__clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}
NEO__EVERYWHERE NEO__INLINE void neo__int_encode(neo_dtype t, int64_t x, void *p) {
    switch (t) {
    case NEO_I8: *(int8_t *)p = (int8_t)neo__clamp(x, INT8_MIN, INT8_MAX); break;
    case NEO_U8: *(uint8_t *)p = (uint8_t)neo__clamp(x, 0, UINT8_MAX); break;
    case NEO_I32: *(int32_t *)p = (int32_t)neo__clamp(x, INT32_MIN, INT32_MAX); break;
    default: *(int64_t *)p = x; break;
    }
}

/* A float's place in a neo_exact, see >>impl-exact: low goes to word `at`, high to the next.
   special: it is not in the words but 1 a NaN, 2 plus infinity, 3 minus infinity. */
typedef struct neo__exact_term {
    int at, special;
    int64_t low, high;
} neo__exact_term;
NEO__EVERYWHERE NEO__INLINE neo__exact_term neo__exact_place(float x) {
    neo__exact_term term;
    uint32_t u = neo__bits_f32(x);
    uint32_t e = u >> 23 & 0xFFu, m = u & 0x7FFFFFu;
    term.special = e != 0xFFu ? 0 : m ? 1 : u >> 31 ? 3 : 2;
    if (e) m |= 0x800000u;
    else e = 1;
    uint32_t p = e + 10u; /* e - 150 + 160 */
    uint64_t wide = (uint64_t)m << (p & 31u);
    int64_t low = (int64_t)(wide & 0xFFFFFFFFu), high = (int64_t)(wide >> 32);
    int64_t sign = -(int64_t)(u >> 31); /* 0 or -1: (v ^ sign) - sign negates */
    term.at = term.special ? -1 : (int)(p >> 5);
    term.low = (low ^ sign) - sign;
    term.high = (high ^ sign) - sign;
    return term;
}

/* neo_exact_normalize, and the bits of neo_exact_value. */
NEO__EVERYWHERE NEO__INLINE void neo__exact_carry(neo_exact *sum) {
    int64_t carry = 0;
    for (int i = 0; i < NEO_EXACT_WORDS - 1; i++) {
        int64_t word = sum->word[i] + carry;
        int64_t digit = (int64_t)((uint64_t)word & 0xFFFFFFFFu);
        carry = (word - digit) / ((int64_t)1 << 32);
        sum->word[i] = digit;
    }
    sum->word[NEO_EXACT_WORDS - 1] += carry;
    sum->terms = 1; /* digits as large as one term can make them */
}
NEO__EVERYWHERE NEO__INLINE uint64_t neo__exact_round(neo_exact sums) {
    if (sums.nan || (sums.pos_inf && sums.neg_inf)) return 0x7FF8000000000000u;
    if (sums.pos_inf) return 0x7FF0000000000000u;
    if (sums.neg_inf) return 0xFFF0000000000000u;
    neo__exact_carry(&sums);
    int negative = sums.word[NEO_EXACT_WORDS - 1] < 0;
    if (negative) {
        for (int i = 0; i < NEO_EXACT_WORDS; i++) sums.word[i] = -sums.word[i];
        neo__exact_carry(&sums);
    }
    uint32_t digit[NEO_EXACT_WORDS + 1]; /* the top word as two digits */
    for (int i = 0; i < NEO_EXACT_WORDS; i++) digit[i] = (uint32_t)sums.word[i];
    digit[NEO_EXACT_WORDS] = (uint32_t)((uint64_t)sums.word[NEO_EXACT_WORDS - 1] >> 32);
    int top = NEO_EXACT_WORDS;
    while (top >= 0 && digit[top] == 0) top--;
    if (top < 0) return 0;
    int bits = 32; /* of the top digit */
    while (!(digit[top] >> (bits - 1))) bits--;

    /* The first 64 bits, then round to 53 by the bits that remain. */
    uint64_t head = 0;
    int sticky = 0, low = 32 * top + bits - 64; /* position of head's last bit */
    for (int i = top; i >= 0; i--) {
        int shift = 32 * i - low;
        if (shift >= 0) head |= (uint64_t)digit[i] << shift;
        else if (shift > -32)
            head |= digit[i] >> -shift, sticky |= (digit[i] << (32 + shift)) != 0;
        else sticky |= digit[i] != 0;
    }
    uint64_t rest = head & 0x7FFu, mantissa = head >> 11;
    if (rest > 0x400u || (rest == 0x400u && (sticky || (mantissa & 1)))) mantissa++;
    /* The value is at least 2^-149 and below 2^256: a normal double. A carry of the rounding runs
       into the exponent. */
    uint64_t exponent = (uint64_t)(low + 11 + 52 - 160 + 1023);
    uint64_t code = ((exponent - 1) << 52) + mantissa;
    return code | (uint64_t)negative << 63;
}

/* Kernels over n >= 0 contiguous elements; the random ones over whole blocks of four elements, from
   block `first` on; those of number[] instead if it is given, filled up to 16s. */
struct neo__tensor_kernels {
    void (*f16_from_f32)(uint16_t *y, const float *x, int64_t n);
    void (*f32_from_f16)(float *y, const uint16_t *x, int64_t n);
    void (*bf16_from_f32)(uint16_t *y, const float *x, int64_t n);
    void (*f32_from_bf16)(float *y, const uint16_t *x, int64_t n);
    /* y = a + scale u, at most top; u uniform in [0, 1) */
    void (*uniform)(float *y, int64_t blocks, const neo__random_key *key, uint64_t first,
                    const uint64_t *number, float a, float scale, float top);
    /* y = a + scale z; z normal */
    void (*normal)(float *y, int64_t blocks, const neo__random_key *key, uint64_t first,
                   const uint64_t *number, float a, float scale);
};
/* Kernels of coded rows: see >>kernels-wire. */
struct neo__wire_kernels {
    /* y = x factor. A finite x whose product is beyond the float with the bits `most` gives that
       one, signed. */
    void (*times)(float *y, const float *x, int64_t n, float factor, int32_t most);
    void (*encode)(const neo__wire_call *c); /* of wires with scales, as the next one */
    void (*decode)(int wire, const char *in, int64_t n, float back, float *x);
};
typedef struct neo__wire_place {
    int64_t row, col;
} neo__wire_place;

#else /* with NEO__PASS, once for each target */

/* =============================================================================
   >>kernels

   Kernels are written with vectors of NEO__W lanes, on which + - * / and, of integers,
   & | ^ << >> work; single numbers beside them stand for all lanes. Every operation is one IEEE
   operation per lane, so every width gives the same bits. Names end in the instruction set:
   NEO__FN(x) is neo__x_avx2 in the AVX2 pass.

     NEO__VF, NEO__VI, NEO__VS, NEO__VM           vectors of f32, u32, i32; a mask
     NEO__LOAD(p) NEO__STORE(p, v)                f32, unaligned; NEO__LOADI(p) of 32-bit integers
     NEO__LOADN(p, n) NEO__STOREN(p, v, n)        the first n < NEO__W lanes; other lanes are 0
     NEO__LOADP(p, part) NEO__STOREP(p, v, part)  the same; NEO__PART part = NEO__LANES(n)
     NEO__SET(x) NEO__SETI(i)                     all lanes
     NEO__SQRT(a) NEO__FMA(a, b, c): a b + c, rounded once      NEO__FNMA(a, b, c): c - a b
     NEO__MAX_(a, b): a > b ? a : b, NEO__MIN_(a, b): a < b ? a : b   (b when unordered or equal)
     NEO__LT LE GT EQ (a, b): mask of f32         NEO__GTI EQI (a, b): of i32
     NEO__SELECT(m, a, b): m ? a : b              NEO__SELECTI: of u32       NEO__ANY(m)
     NEO__SRAI(v, n)                              shifts i32 to the right, n constant
     NEO__SLLV(v, n) NEO__SRLV(v, n)              shifts u32 by lanes; 0 where n, unsigned, is > 31
     NEO__MINI(a, b): of i32                      NEO__COUNT_IF(m, v): u32, one more where m
     NEO__TO_I(v): to i32, nearest even, NEO__TRUNC_I(v): towards zero   NEO__TO_F(vi): from i32
     NEO__AS_I(v) NEO__AS_F(vi): the same bits
     NEO__TREE16(p): the sum of 16 floats at p by the fixed tree (i + 8, + 4, + 2, + 1)
     NEO__SPILL(p, v)                             the lanes of v to an array that scalar code reads
     NEO__ADD1 SUB1 MUL1 DIV1 SQRT1 FMA1          of single floats, each rounded by itself

   NEO__PASS_WARP is a GPU, for neo_cuda.cuh: 16 lanes of a warp are a vector, and each runs the
   whole text. So scalars are computed alike by all 16; an array in a function is a lane's own, of
   which it sees what it stored itself; and memory that one lane wrote may be read by another only
   after NEO__SYNC(), which is nothing elsewhere. Scalars in memory are read, then synchronized,
   then written.
   ========================================================================== */
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__FN(name) neo__##name##_scalar
#define NEO__W 1
#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__FN(name) neo__##name##_avx2
#define NEO__W 8
#elif NEO__PASS == NEO__PASS_AVX512
#define NEO__FN(name) neo__##name##_avx512
#define NEO__W 16
#elif NEO__PASS == NEO__PASS_WARP
#define NEO__FN(name) neo__##name##_warp
#define NEO__W 16
#else
#define NEO__FN(name) neo__##name##_neon
#define NEO__W 4
#endif
/* AVX-512 takes from the AVX2 pass what its vectors make no faster in the whole: what is done once
   per sample or row of a batch, once per run, or seldom. */
#if NEO__PASS == NEO__PASS_AVX512
#define NEO__FN8(name) neo__##name##_avx2
#else
#define NEO__FN8(name) NEO__FN(name)
#endif
/* AVX-512 has the products alone in a program that only predicts: see neo__isa_bind of neo.h. */
#define NEO__WHOLE_PASS (NEO__TRAINS || NEO__PASS != NEO__PASS_AVX512)

#if NEO__PASS == NEO__PASS_WARP
#define NEO__KERNEL NEO__UNUSED static __device__
#define NEO__KERNEL_INLINE static __device__ __forceinline__
#define NEO__KERNEL_FAR NEO__UNUSED static __device__
#define NEO__SYNC() __syncwarp(NEO__FN(mask)())
#define NEO__ADD1(a, b) __fadd_rn(a, b)
#define NEO__SUB1(a, b) __fsub_rn(a, b)
#define NEO__MUL1(a, b) __fmul_rn(a, b)
#define NEO__DIV1(a, b) __fdiv_rn(a, b)
#define NEO__SQRT1(a) __fsqrt_rn(a)
#define NEO__FMA1(a, b, c) __fmaf_rn(a, b, c)
#else
#define NEO__KERNEL static
#define NEO__KERNEL_INLINE NEO__INLINE
#define NEO__KERNEL_FAR static NEO__NOINLINE
#define NEO__SYNC() ((void)0)
#define NEO__SPILL(p, v) NEO__STORE(p, v)
#define NEO__ADD1(a, b) ((a) + (b))
#define NEO__SUB1(a, b) ((a) - (b))
#define NEO__MUL1(a, b) ((a) * (b))
#define NEO__DIV1(a, b) ((a) / (b))
#define NEO__SQRT1(a) sqrtf(a)
#define NEO__FMA1(a, b, c) neo__fma(a, b, c)
#endif

/* ---- vectors that are a single number, that of NEO__LANE ---- */
#if NEO__PASS == NEO__PASS_SCALAR || NEO__PASS == NEO__PASS_WARP
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__VF float
#define NEO__LANE 0
#define NEO__ANY(m) (m)
#else
/* A float whose products and sums nvcc does not contract to fma. */
struct NEO__FN(float) {
    float x;
    NEO__FN(float)() = default;
    __device__ __forceinline__ NEO__FN(float)(float f) : x(f) {}
    __device__ __forceinline__ operator float() const { return x; }
};
#define NEO__VF NEO__FN(float)
#define NEO__OPERATOR(sign, rounded)                                                               \
    NEO__KERNEL_INLINE NEO__VF operator sign(NEO__VF a, NEO__VF b) { return rounded(a.x, b.x); }   \
    NEO__KERNEL_INLINE NEO__VF operator sign(NEO__VF a, float b) { return rounded(a.x, b); }       \
    NEO__KERNEL_INLINE NEO__VF operator sign(float a, NEO__VF b) { return rounded(a, b.x); }
NEO__OPERATOR(+, __fadd_rn)
NEO__OPERATOR(-, __fsub_rn)
NEO__OPERATOR(*, __fmul_rn)
NEO__OPERATOR(/, __fdiv_rn)
#undef NEO__OPERATOR
NEO__KERNEL_INLINE int NEO__FN(lane)(void) { return (int)(threadIdx.x & 15u); }
/* The 16 threads of the vector among the warp's 32. */
NEO__KERNEL_INLINE unsigned NEO__FN(mask)(void) { return 0xFFFFu << (threadIdx.x & 16u); }
#define NEO__LANE NEO__FN(lane)()
#define NEO__ANY(m) __any_sync(NEO__FN(mask)(), m)
#define NEO__SPILL(p, v) NEO__FN(spill)(p, v)
NEO__KERNEL_INLINE void NEO__FN(spill)(float *p, float v) {
    for (int l = 0; l < 16; l++) p[l] = __shfl_sync(NEO__FN(mask)(), v, l, 16);
}
#endif
#define NEO__LOAD(p) ((NEO__VF)((const float *)(p))[NEO__LANE])
#define NEO__LOADI(p) (((const uint32_t *)(p))[NEO__LANE])
#define NEO__STORE(p, v) ((p)[NEO__LANE] = (v))
#define NEO__LOADP(p, part) ((NEO__VF)(NEO__LANE < (part) ? (p)[NEO__LANE] : 0.0f))
#define NEO__STOREP(p, v, part)                                                                    \
    do {                                                                                           \
        if (NEO__LANE < (part)) (p)[NEO__LANE] = (v);                                              \
    } while (0)
#define NEO__VI uint32_t
#define NEO__VS int32_t
#define NEO__VM int
#define NEO__SET(x) ((NEO__VF)(float)(x))
#define NEO__SETI(x) ((uint32_t)(x))
#define NEO__SQRT(a) ((NEO__VF)NEO__SQRT1(a))
#define NEO__FMA(a, b, c) ((NEO__VF)NEO__FMA1(a, b, c))
#define NEO__FNMA(a, b, c) ((NEO__VF)NEO__FMA1(-(a), b, c))
#define NEO__SELECT(m, a, b) ((m) ? (a) : (b))
#define NEO__SELECTI(m, a, b) ((m) ? (a) : (b))
#define NEO__TO_I(v) NEO__FN(round_to_i32)(v)
#define NEO__TRUNC_I(v) ((uint32_t)(int32_t)(v))
#define NEO__TO_F(v) NEO__SET((int32_t)(v))
#define NEO__AS_I(v) neo__bits_f32(v)
#define NEO__AS_F(v) ((NEO__VF)neo__f32_bits(v))
/* To nearest even for |x| < 2^22, by the sum's own rounding. */
NEO__KERNEL_INLINE uint32_t NEO__FN(round_to_i32)(NEO__VF x) {
    return neo__bits_f32(x + 12582912.0f) - 0x4B400000u; /* 1.5 * 2^23 */
}

/* ---- vectors of the compiler ---- */
#else
typedef float NEO__FN(vf) __attribute__((vector_size(4 * NEO__W)));
typedef float NEO__FN(vf_at) __attribute__((vector_size(4 * NEO__W), aligned(4), may_alias));
typedef uint32_t NEO__FN(vi) __attribute__((vector_size(4 * NEO__W)));
typedef int32_t NEO__FN(vs) __attribute__((vector_size(4 * NEO__W)));
#define NEO__VF NEO__FN(vf)
#define NEO__VI NEO__FN(vi)
#define NEO__VS NEO__FN(vs)
#define NEO__LOAD(p) ((NEO__VF) * (const NEO__FN(vf_at) *)(p))
#define NEO__LOADI(p) NEO__AS_I(NEO__LOAD((const void *)(p)))
#define NEO__STORE(p, v) (*(NEO__FN(vf_at) *)(p) = (v))
#define NEO__TRUNC_I(v) ((NEO__VI)__builtin_convertvector(v, NEO__VS))
#define NEO__TO_F(v) __builtin_convertvector((NEO__VS)(v), NEO__VF)
#define NEO__AS_I(v) ((NEO__VI)(v))
#define NEO__AS_F(v) ((NEO__VF)(v))
#endif

/* ---- by the instruction set ---- */
#if NEO__PASS == NEO__PASS_AVX512 || NEO__PASS == NEO__PASS_AVX2
#if NEO__PASS == NEO__PASS_AVX512
#if defined(NEO__FEW_512) /* what products call of <avx512fintrin.h>, which takes long to read */
#define NEO__MM(name) neo__512_##name
typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef unsigned short __mmask16;
typedef short neo__512_halves __attribute__((vector_size(32)));
NEO__KERNEL_INLINE NEO__VF neo__512_set1_ps(float x) {
    const NEO__VF v = {x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
    return v;
}
#define NEO__512_ZERO (__extension__(NEO__VF){0.0f})
#define NEO__512_NO_HALVES (__extension__(neo__512_halves){0})
#define neo__512_fmadd_ps(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4)
#define neo__512_max_ps(a, b) __builtin_ia32_maxps512_mask(a, b, NEO__512_ZERO, -1, 4)
#define neo__512_cmp_ps_mask(a, b, how) ((__mmask16)__builtin_ia32_cmpps512_mask(a, b, how, -1, 4))
#define neo__512_maskz_loadu_ps(m, p) __builtin_ia32_loadups512_mask(p, NEO__512_ZERO, (short)(m))
#define neo__512_mask_storeu_ps(p, m, v) __builtin_ia32_storeups512_mask(p, v, (short)(m))
#define neo__512_stream_ps(p, v) __builtin_ia32_movntps512(p, v)
#define neo__512_maskz_compress_epi32(m, v)                                                        \
    __builtin_ia32_compresssi512_mask((NEO__VS)(v), (NEO__VS)NEO__512_ZERO, (short)(m))
#define neo__512_cvtepi32_epi16(v)                                                                 \
    __builtin_ia32_pmovdw512_mask((NEO__VS)(v), NEO__512_NO_HALVES, -1)
#define neo__512_cvtepu16_epi32(v)                                                                 \
    __builtin_ia32_pmovzxwd512_mask((neo__512_halves)(v), (NEO__VS)NEO__512_ZERO, -1)
#define neo__512_castps128_ps512(v) __builtin_ia32_ps512_ps(v)
#define neo__512_insertf32x4(a, b, at) __builtin_ia32_insertf32x4_mask(a, b, at, NEO__512_ZERO, -1)
#define neo__512_castps_pd(v) ((__m512d)(v))
#define neo__512_unpacklo_ps(a, b) __builtin_ia32_unpcklps512_mask(a, b, NEO__512_ZERO, -1)
#define neo__512_unpackhi_ps(a, b) __builtin_ia32_unpckhps512_mask(a, b, NEO__512_ZERO, -1)
#define neo__512_unpacklo_pd(a, b) __builtin_ia32_unpcklpd512_mask(a, b, (__m512d)NEO__512_ZERO, -1)
#define neo__512_unpackhi_pd(a, b) __builtin_ia32_unpckhpd512_mask(a, b, (__m512d)NEO__512_ZERO, -1)
#else
#define NEO__MM(name) _mm512_##name
#endif
#define NEO__VM __mmask16
#define NEO__PART __mmask16
#define NEO__LANES(n) ((__mmask16)((1u << (n)) - 1u))
#define NEO__LOADP(p, part) ((NEO__VF)NEO__MM(maskz_loadu_ps)(part, p))
#define NEO__STOREP(p, v, part) NEO__MM(mask_storeu_ps)(p, part, v)
#define NEO__SELECT(m, a, b) ((NEO__VF)_mm512_mask_blend_ps(m, b, a))
#define NEO__SELECTI(m, a, b) ((NEO__VI)_mm512_mask_blend_epi32(m, (__m512i)(b), (__m512i)(a)))
#define NEO__ANY(m) ((m) != 0)
#define NEO__MINI(a, b) ((NEO__VI)_mm512_min_epi32((__m512i)(a), (__m512i)(b)))
#define NEO__COUNT_IF(m, v)                                                                        \
    ((NEO__VI)_mm512_mask_sub_epi32((__m512i)(v), m, (__m512i)(v), _mm512_set1_epi32(-1)))
#define NEO__SLLV(v, n) ((NEO__VI)_mm512_sllv_epi32((__m512i)(v), (__m512i)(n)))
#define NEO__SRLV(v, n) ((NEO__VI)_mm512_srlv_epi32((__m512i)(v), (__m512i)(n)))
#else
#define NEO__MM(name) _mm256_##name
#define NEO__VM NEO__VS
#define NEO__PART __m256i
#define NEO__LANES(n) NEO__FN(lanes)(n)
NEO__KERNEL_INLINE __m256i NEO__FN(lanes)(int64_t n) {
    static const int32_t mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(const void *)(mask + 8 - n));
}
#define NEO__LOADP(p, part) ((NEO__VF)_mm256_maskload_ps(p, part))
/* Plain stores: a masked one takes a dozen cycles on some processors. */
#define NEO__STOREP(p, v, part)                                                                    \
    NEO__FN(storen)(p, v, __builtin_popcount((unsigned)_mm256_movemask_ps((__m256)(part))))
#define NEO__SELECT(m, a, b) ((NEO__VF)_mm256_blendv_ps(b, a, (__m256)(m)))
#define NEO__SELECTI(m, a, b)                                                                      \
    ((NEO__VI)_mm256_blendv_epi8((__m256i)(b), (__m256i)(a), (__m256i)(m)))
#define NEO__ANY(m) (_mm256_movemask_ps((__m256)(m)) != 0)
#define NEO__MINI(a, b) ((NEO__VI)_mm256_min_epi32((__m256i)(a), (__m256i)(b)))
#define NEO__SLLV(v, n) ((NEO__VI)_mm256_sllv_epi32((__m256i)(v), (__m256i)(n)))
#define NEO__SRLV(v, n) ((NEO__VI)_mm256_srlv_epi32((__m256i)(v), (__m256i)(n)))
#endif
#define NEO__SET(x) ((NEO__VF)NEO__MM(set1_ps)(x))
#define NEO__SETI(x) ((NEO__VI)NEO__MM(set1_epi32)((int32_t)(x)))
#define NEO__SQRT(a) ((NEO__VF)NEO__MM(sqrt_ps)(a))
#define NEO__FMA(a, b, c) ((NEO__VF)NEO__MM(fmadd_ps)(a, b, c))
#define NEO__FNMA(a, b, c) ((NEO__VF)NEO__MM(fnmadd_ps)(a, b, c))
#define NEO__MAX_(a, b) ((NEO__VF)NEO__MM(max_ps)(a, b))
#define NEO__MIN_(a, b) ((NEO__VF)NEO__MM(min_ps)(a, b))
#define NEO__TO_I(v) ((NEO__VI)NEO__MM(cvtps_epi32)(v))
NEO__KERNEL_INLINE float NEO__FN(tree16)(const float *p) {
    __m256 a = _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
#elif NEO__PASS == NEO__PASS_NEON
#define NEO__VM NEO__VS
#define NEO__LOADP(p, part) NEO__FN(loadp)(p, part)
#define NEO__STOREP(p, v, part) NEO__FN(storep)(p, v, part)
NEO__KERNEL_INLINE NEO__VF NEO__FN(loadp)(const float *p, int64_t n) {
    float lane[4] = {0, 0, 0, 0};
    for (int64_t i = 0; i < n; i++) lane[i] = p[i];
    return NEO__LOAD(lane);
}
NEO__KERNEL_INLINE void NEO__FN(storep)(float *p, NEO__VF v, int64_t n) {
    float lane[4];
    NEO__STORE(lane, v);
    for (int64_t i = 0; i < n; i++) p[i] = lane[i];
}
#define NEO__SET(x) ((NEO__VF)vdupq_n_f32(x))
#define NEO__SETI(x) ((NEO__VI)vdupq_n_u32((uint32_t)(x)))
#define NEO__SQRT(a) ((NEO__VF)vsqrtq_f32(a))
#define NEO__FMA(a, b, c) ((NEO__VF)vfmaq_f32(c, a, b))
#define NEO__FNMA(a, b, c) ((NEO__VF)vfmsq_f32(c, a, b))
#define NEO__SELECT(m, a, b) ((NEO__VF)vbslq_f32((NEO__VI)(m), a, b))
#define NEO__SELECTI(m, a, b) ((NEO__VI)vbslq_u32((NEO__VI)(m), a, b))
#define NEO__ANY(m) (vmaxvq_u32((NEO__VI)(m)) != 0)
#define NEO__SLLV(v, n) ((NEO__VI)vshlq_u32(v, (NEO__VS)vminq_u32(n, vdupq_n_u32(32))))
#define NEO__SRLV(v, n) ((NEO__VI)vshlq_u32(v, -(NEO__VS)vminq_u32(n, vdupq_n_u32(32))))
#define NEO__TO_I(v) ((NEO__VI)vcvtnq_s32_f32(v))
NEO__KERNEL_INLINE float NEO__FN(tree16)(const float *p) {
    NEO__VF a = (NEO__LOAD(p) + NEO__LOAD(p + 8)) + (NEO__LOAD(p + 4) + NEO__LOAD(p + 12));
    return (a[0] + a[2]) + (a[1] + a[3]);
}
#elif NEO__PASS == NEO__PASS_WARP
/* All lanes get the sum: to exchange two halves does not change it. */
NEO__KERNEL_INLINE float NEO__FN(tree16)(NEO__VF v) {
    for (int step = 8; step > 0; step /= 2)
        v = v + __shfl_xor_sync(NEO__FN(mask)(), v.x, step, 16);
    return v;
}
#else
NEO__KERNEL_INLINE float NEO__FN(tree16)(const float *p) {
    float a[8];
    for (int i = 0; i < 8; i++) a[i] = p[i] + p[i + 8];
    for (int i = 0; i < 4; i++) a[i] = a[i] + a[i + 4];
    return (a[0] + a[2]) + (a[1] + a[3]);
}
#endif
#if NEO__PASS == NEO__PASS_WARP
#define NEO__TREE16(p) NEO__FN(tree16)(NEO__LOAD(p))
#else
#define NEO__TREE16(p) NEO__FN(tree16)(p)
#endif

/* ---- common to all, or to all but one ---- */
#undef NEO__LOADN
#if NEO__PASS == NEO__PASS_AVX2 /* one number, just stored, often: a masked load waits for it */
#define NEO__LOADN(p, n) NEO__FN(loadn)(p, n)
NEO__KERNEL_INLINE NEO__VF NEO__FN(loadn)(const float *p, int64_t n) {
    if (n == 1) return (NEO__VF)_mm256_setr_ps(*p, 0, 0, 0, 0, 0, 0, 0);
    return NEO__LOADP(p, NEO__LANES(n));
}
#else
#define NEO__LOADN(p, n) NEO__LOADP(p, NEO__LANES(n))
#endif
#undef NEO__STREAM
#undef NEO__STREAM_END
#if NEO__PASS == NEO__PASS_AVX512 || NEO__PASS == NEO__PASS_AVX2
#define NEO__STREAM(p, v) NEO__MM(stream_ps)(p, v)
#define NEO__STREAM_END() _mm_sfence()
#else
#define NEO__STREAM(p, v) NEO__STORE(p, v)
#define NEO__STREAM_END() ((void)0)
#endif
#undef NEO__STOREN
#if NEO__PASS == NEO__PASS_AVX2 /* stores by a mask are slow on some processors */
#define NEO__STOREN(p, v, n) NEO__FN(storen)(p, v, n)
NEO__KERNEL_INLINE void NEO__FN(storen)(float *p, NEO__VF v, int64_t n) {
    __m128 part = _mm256_castps256_ps128(v);
    if (n & 8) NEO__STORE(p, v);
    if (n & 4) _mm_storeu_ps(p, part), p += 4, part = _mm256_extractf128_ps(v, 1);
    if (n & 2) _mm_storel_pi((__m64 *)(void *)p, part), p += 2, part = _mm_movehl_ps(part, part);
    if (n & 1) _mm_store_ss(p, part);
}
#else
#define NEO__STOREN(p, v, n) NEO__STOREP(p, v, NEO__LANES(n))
#endif
#define NEO__SRAI(v, n) ((NEO__VI)((NEO__VS)(v) >> (n)))
#if NEO__PASS == NEO__PASS_AVX512
#define NEO__LT(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)
#define NEO__LE(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ)
#define NEO__GT(a, b) _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)
#define NEO__EQ(a, b) _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)
#define NEO__GTI(a, b) _mm512_cmpgt_epi32_mask((__m512i)(a), (__m512i)(b))
#define NEO__EQI(a, b) _mm512_cmpeq_epi32_mask((__m512i)(a), (__m512i)(b))
#else
#define NEO__LT(a, b) ((a) < (b))
#define NEO__LE(a, b) ((a) <= (b))
#define NEO__GT(a, b) ((a) > (b))
#define NEO__EQ(a, b) ((a) == (b))
#define NEO__GTI(a, b) ((NEO__VS)(a) > (NEO__VS)(b))
#define NEO__EQI(a, b) ((a) == (b))
#endif
#ifndef NEO__MINI
#define NEO__MINI(a, b) NEO__SELECTI(NEO__GTI(b, a), a, b)
#endif
#ifndef NEO__COUNT_IF
#if NEO__PASS == NEO__PASS_SCALAR || NEO__PASS == NEO__PASS_WARP
#define NEO__COUNT_IF(m, v) ((v) + (uint32_t)(m))
#else
#define NEO__COUNT_IF(m, v) ((v) - (NEO__VI)(m))
#endif
#endif
#if NEO__PASS == NEO__PASS_WARP && defined(__CUDA_ARCH__) /* an instruction each */
#define NEO__SLLV(v, n) __funnelshift_lc(0u, v, n)
#define NEO__SRLV(v, n) __funnelshift_rc(v, 0u, n)
#elif !defined(NEO__SRLV)
#define NEO__SLLV(v, n) ((n) > 31u ? 0u : (v) << ((n) & 31u))
#define NEO__SRLV(v, n) ((n) > 31u ? 0u : (v) >> ((n) & 31u))
#endif
#ifndef NEO__PART
#define NEO__PART int64_t
#define NEO__LANES(n) (n)
#endif
#ifndef NEO__MAX_
NEO__KERNEL_INLINE NEO__VF NEO__FN(max)(NEO__VF a, NEO__VF b) {
    return NEO__SELECT(NEO__GT(a, b), a, b);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(min)(NEO__VF a, NEO__VF b) {
    return NEO__SELECT(NEO__LT(a, b), a, b);
}
#define NEO__MAX_(a, b) NEO__FN(max)(a, b)
#define NEO__MIN_(a, b) NEO__FN(min)(a, b)
#endif

/* For each vector i of a chunk. The count is a constant in every caller, so that the loop is
   unrolled and sums s[i] stay in registers. */
#define NEO__EACH(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)

#if NEO__WHOLE_PASS
/* ---- >>kernels-math ----
   exp, log, log1p, tanh, sigmoid, the normal distribution (for GELU), sin and cos on vectors of
   f32. No table, no libm: argument reduction and a minimax polynomial, every step one IEEE
   operation, so that all widths agree. The scalar pass's functions serve the rest of the file:
   neo__vexp_scalar(x). Largest errors of a sweep of 43 million floats (tests/core/math.c): exp
   0.99 ulp, log 0.83, log1p 1.41, tanh 1.3, sigmoid 2.3, normal distribution function 5.4
   (x > -13), sin and cos 1.6 (|x| <= 2^14). Infinities, NaNs, signed zeros and denormals give what
   C's functions give (but sin(-0) is +0). */

#undef NEO__KERNEL_MATH
#if NEO__PASS == NEO__PASS_SCALAR && defined(NEO_INFERENCE) /* in little code */
#define NEO__KERNEL_MATH NEO__UNUSED NEO__KERNEL_FAR
#else
#define NEO__KERNEL_MATH NEO__KERNEL_INLINE
#endif
/* c[0] + x (c[1] + ... + x c[count - 1]) by Horner's rule with fma; unrolled by the compiler. */
NEO__KERNEL_MATH NEO__VF NEO__FN(vpoly)(NEO__VF x, const float *c, int count) {
    NEO__VF p = NEO__SET(c[count - 1]);
    for (int i = count - 2; i >= 0; i--) p = NEO__FMA(p, x, NEO__SET(c[i]));
    return p;
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vabs)(NEO__VF x) {
    return NEO__AS_F(NEO__AS_I(x) & 0x7FFFFFFFu);
}
/* |x| with the sign of s; x >= 0. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vsigned)(NEO__VF x, NEO__VF s) {
    return NEO__AS_F(NEO__AS_I(x) | (NEO__AS_I(s) & 0x80000000u));
}
/* 2^n for n in [-126, 127]. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vpow2i)(NEO__VI n) { return NEO__AS_F((n + 127u) << 23); }

/* e^x = 2^n e^r, |r| <= ln(2)/2, e^r = 1 + r + r^2 q(r). The factor 2^n is applied in two halves,
   the first exact, so results that are denormal round once. */
NEO__KERNEL_MATH NEO__VF NEO__FN(vexp)(NEO__VF x) {
    static const float q[5] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558bp-5f, 0x1.12398ep-7f,
                               0x1.6a4d6p-10f};
    x = NEO__MIN_(NEO__SET(89.0f), x); /* e^89 overflows, e^-104 rounds to 0; a NaN stays */
    x = NEO__MAX_(NEO__SET(-104.0f), x);
    NEO__VI n = NEO__TO_I(x * 0x1.715476p+0f);
    NEO__VF k = NEO__TO_F(n);
    NEO__VF r = NEO__FNMA(k, NEO__SET(0x1.62e43p-1f), x);
    r = NEO__FNMA(k, NEO__SET(-0x1.05c61p-29f), r);
    NEO__VF p = NEO__FMA(r * r, NEO__FN(vpoly)(r, q, 5), r);
    p = 1.0f + p;
#if NEO__PASS == NEO__PASS_AVX512
    return _mm512_scalef_ps(p, k); /* rounds once, too */
#else
    NEO__VI half = NEO__SRAI(n, 1);
    p = p * NEO__FN(vpow2i)(half);
    return p * NEO__FN(vpow2i)(n - half);
#endif
}

/* k ln 2 + log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]: f - f^2/2 + f^3 p(f). */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vlog_reduced)(NEO__VF f, NEO__VF k) {
    static const float p[10] = {-0.5f,           0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a476p-3f,
                                -0x1.555c46p-3f, 0x1.233ba8p-3f, -0x1.fc2886p-4f, 0x1.e6bf3ap-4f,
                                -0x1.de02bcp-4f, 0x1.14760cp-4f};
    NEO__VF t = k * -0x1.05c61p-29f;
    t = NEO__FMA(f * f, NEO__FN(vpoly)(f, p, 10), t);
    return NEO__FMA(k, NEO__SET(0x1.62e43p-1f), f + t);
}
/* The exponent k of u = 2^k m with m in [sqrt(1/2), sqrt(2)), u positive and normal. */
NEO__KERNEL_INLINE NEO__VI NEO__FN(vlog_exponent)(NEO__VF u) {
    return NEO__SRAI(NEO__AS_I(u) - 0x3F3504F3u, 23);
}
/* r where the logarithm's argument 1 + x or x is positive and finite; else what IEEE asks. pole:
   where it is 0. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vlog_special)(NEO__VF x, NEO__VF pole, NEO__VF r) {
    r = NEO__SELECT(NEO__LT(x, NEO__AS_F(NEO__SETI(0x7F800000))), r, x + x); /* inf, NaN */
    r = NEO__SELECT(NEO__EQ(x, pole), NEO__AS_F(NEO__SETI(0xFF800000)), r);
    return NEO__SELECT(NEO__LT(x, pole), NEO__AS_F(NEO__SETI(0x7FC00000)), r);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vlog)(NEO__VF x) {
    NEO__VM tiny = NEO__LT(x, NEO__SET(0x1p-126f));
    NEO__VF u = NEO__SELECT(tiny, x * 0x1p23f, x);
    NEO__VI k = NEO__FN(vlog_exponent)(u);
    NEO__VF m = NEO__AS_F(NEO__AS_I(u) - (k << 23));
    NEO__VF kf = NEO__TO_F(k) - NEO__SELECT(tiny, NEO__SET(23.0f), NEO__SET(0.0f));
    NEO__VF r = NEO__FN(vlog_reduced)(m - 1.0f, kf);
    return NEO__FN(vlog_special)(x, NEO__SET(0.0f), r);
}
/* log(1 + x): the exponent k comes from the rounded 1 + x, the reduced argument 2^-k (1 + x) - 1
   from x itself by one fma, so nothing of a small x is lost. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vlog1p)(NEO__VF x) {
    NEO__VF one = NEO__SET(1.0f), u = one + x;
    NEO__VI k = NEO__FN(vlog_exponent)(u);
    NEO__VF m = NEO__AS_F(NEO__AS_I(u) - (k << 23));
    NEO__VF s = NEO__FN(vpow2i)(0u - k);
    NEO__VF f = NEO__FMA(x, s, s - one);
    f = NEO__SELECT(NEO__GTI(k, NEO__SETI(24)), m - one, f); /* there 1 does not matter */
    NEO__VF r = NEO__FN(vlog_reduced)(f, NEO__TO_F(k));
    r = NEO__SELECT(NEO__EQ(x, NEO__SET(0.0f)), x, r); /* -0 */
    return NEO__FN(vlog_special)(x, NEO__SET(-1.0f), r);
}

/* 1/(1 + e^-x), from e^-|x| so that neither end loses digits. */
NEO__KERNEL_MATH NEO__VF NEO__FN(vsigmoid)(NEO__VF x) {
    NEO__VF zero = NEO__SET(0.0f), one = NEO__SET(1.0f);
    NEO__VF e = NEO__FN(vexp)(zero - NEO__FN(vabs)(x));
    return NEO__SELECT(NEO__LT(x, zero), e, one) / (one + e);
}
/* With x's sign: a + a^3 p(a^2) for a = |x| < 0.6, else 1 - 2/(e^2a + 1). */
NEO__KERNEL_MATH NEO__VF NEO__FN(vtanh)(NEO__VF x) {
    static const float p[5] = {-0x1.55553ep-2f, 0x1.1109bep-3f, -0x1.b89abap-5f, 0x1.54c3c2p-6f,
                               -0x1.828776p-8f};
    NEO__VF one = NEO__SET(1.0f), a = NEO__FN(vabs)(x), u = x * x;
    NEO__VF low = NEO__FMA(a * u, NEO__FN(vpoly)(u, p, 5), a);
    NEO__VF e = NEO__FN(vexp)(a + a);
    NEO__VF high = one - 2.0f / (e + one);
    return NEO__FN(vsigned)(NEO__SELECT(NEO__LT(a, NEO__SET(0.6f)), low, high), x);
}
/* The standard normal distribution function, and its density in *density. With a = |x| the upper
   tail is e^(-a^2/2) h(s), s = (a - 3)/(a + 3); a^2 is carried in two parts, or the exponential
   would lose its digits. */
NEO__KERNEL_MATH NEO__VF NEO__FN(vnormal)(NEO__VF x, NEO__VF *density) {
    static const float h[10] = {
        0x1.f1b89cp-4f, -0x1.a6b66cp-3f,  0x1.f8bad4p-4f,   -0x1.7a93eep-5f, 0x1.91d942p-8f,
        0x1.7c971p-9f,  -0x1.018346p-10f, -0x1.61deb4p-12f, 0x1.ddb3dcp-14f, 0x1.b2b944p-15f};
    NEO__VF three = NEO__SET(3.0f), half = NEO__SET(0.5f), zero = NEO__SET(0.0f);
    NEO__VF a = NEO__MIN_(NEO__SET(16.0f), NEO__FN(vabs)(x)); /* the tail beyond is 0 in f32 */
    NEO__VF square = a * a, rest = NEO__FMA(a, a, zero - square);
    NEO__VF e = NEO__FN(vexp)(-0.5f * square);
    e = NEO__FNMA(half * rest, e, e);
    NEO__VF s = (a - three) / (a + three);
    NEO__VF tail = e * NEO__FN(vpoly)(s, h, 10);
    *density = e * 0x1.988454p-2f; /* 1/sqrt(2 pi) */
    return NEO__SELECT(NEO__LT(x, zero), tail, 1.0f - tail);
}

/* sin and cos: x - n pi/2 with pi/2 in three parts, n rounded; then the polynomial of the
   quadrant. */
NEO__KERNEL_INLINE void NEO__FN(vsincos)(NEO__VF x, NEO__VF *sine, NEO__VF *cosine) {
    static const float ps[3] = {-0x1.555546p-3f, 0x1.110774p-7f, -0x1.9951fap-13f};
    static const float pc[3] = {0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e816p-16f};
    NEO__VI n = NEO__TO_I(x * 0x1.45f306p-1f); /* 2/pi */
    NEO__VF k = NEO__TO_F(n);
    NEO__VF r = NEO__FNMA(k, NEO__SET(0x1.921fb6p+0f), x);
    r = NEO__FNMA(k, NEO__SET(-0x1.777a5cp-25f), r);
    r = NEO__FNMA(k, NEO__SET(-0x1.ee59dap-50f), r);
    NEO__VF u = r * r;
    NEO__VF s = NEO__FMA(r * u, NEO__FN(vpoly)(u, ps, 3), r);
    NEO__VF c = NEO__FMA(u, NEO__SET(-0.5f), NEO__SET(1.0f));
    c = NEO__FMA(u * u, NEO__FN(vpoly)(u, pc, 3), c);
    NEO__VI one = NEO__SETI(1);
    NEO__VM even = NEO__EQI(n & one, NEO__SETI(0));
    NEO__VI sign_s = (n & 2u) << 30;
    NEO__VI sign_c = ((n + one) & 2u) << 30;
    *sine = NEO__AS_F(NEO__AS_I(NEO__SELECT(even, s, c)) ^ sign_s);
    *cosine = NEO__AS_F(NEO__AS_I(NEO__SELECT(even, c, s)) ^ sign_c);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vsin)(NEO__VF x) {
    NEO__VF s, c;
    NEO__FN(vsincos)(x, &s, &c);
    return s;
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vcos)(NEO__VF x) {
    NEO__VF s, c;
    NEO__FN(vsincos)(x, &s, &c);
    return c;
}

#endif
NEO__LEAN_BEGIN
#if NEO__WHOLE_PASS
/* ---- >>kernels-vec ----
   NEO__LOOP(body) runs its body for whole vectors of the columns [0, n), i being the first column
   of one, then once for the masked rest; scalars have no rest. There NEO__LD(p) is the vector p +
   i, and NEO__ST(p, v) stores it. NEO__LONG_LOOP is for bodies next to which a mask (with AVX-512)
   or asking whether one is needed (AVX2) costs next to nothing: they are compiled once. */
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__LD(p) NEO__LOAD((p) + i)
#define NEO__ST(p, v) NEO__STORE((p) + i, v)
#define NEO__LOOP(...)                                                                             \
    do {                                                                                           \
        for (int64_t i = 0; i < n; i++) { __VA_ARGS__; }                                           \
    } while (0)
#else
#define NEO__LD(p) (NEO__IS_WHOLE ? NEO__LOAD((p) + i) : NEO__LOADP((p) + i, part))
#define NEO__ST(p, v)                                                                              \
    do {                                                                                           \
        const NEO__VF value_ = v;                                                                  \
        if (NEO__IS_WHOLE) NEO__STORE((p) + i, value_);                                            \
        else NEO__STOREP((p) + i, value_, part);                                                   \
    } while (0)
#define NEO__LOOP(...)                                                                             \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (NEO__PART part; i + NEO__W <= n; i += NEO__W) {                                       \
            enum { NEO__IS_WHOLE = 1 };                                                            \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        if (i < n) {                                                                               \
            enum { NEO__IS_WHOLE = 0 };                                                            \
            const NEO__PART part = NEO__LANES(n - i);                                              \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
#endif
#if NEO__PASS == NEO__PASS_AVX512 || NEO__PASS == NEO__PASS_AVX2
#define NEO__LONG_LOOP(...)                                                                        \
    do {                                                                                           \
        NEO__PART part = NEO__LANES(NEO__W);                                                       \
        for (int64_t i = 0; i < n; i += NEO__W) {                                                  \
            const int NEO__IS_WHOLE = NEO__PASS == NEO__PASS_AVX2 && n - i >= NEO__W;              \
            if (n - i < NEO__W) part = NEO__LANES(n - i);                                          \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
#else
#define NEO__LONG_LOOP(...) NEO__LOOP(__VA_ARGS__)
#endif

NEO__KERNEL void NEO__FN(vec_add)(float *y, const float *x, int64_t n) {
    NEO__LOOP(NEO__ST(y, NEO__LD(y) + NEO__LD(x)));
}
NEO__KERNEL void NEO__FN(vec_mul)(float *y, const float *x, int64_t n) {
    NEO__LOOP(NEO__ST(y, NEO__LD(y) * NEO__LD(x)));
}
NEO__KERNEL void NEO__FN(vec_addcmul)(const float *base, const float *y, const float *z,
                                      float *out, int64_t n) {
    if (base) NEO__LOOP(NEO__ST(out, NEO__FMA(NEO__LD(y), NEO__LD(z), NEO__LD(base))));
    else NEO__LOOP(NEO__ST(out, NEO__LD(y) * NEO__LD(z)));
}

/* ---- activations ---- */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vgelu)(NEO__VF x) {
    NEO__VF density;
    NEO__VF cdf = NEO__FN(vnormal)(x, &density);
    return x * cdf;
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vgelu_slope)(NEO__VF x) {
    NEO__VF density;
    NEO__VF cdf = NEO__FN(vnormal)(x, &density);
    NEO__VF bounded =
        NEO__MAX_(NEO__SET(-16.0f), NEO__MIN_(NEO__SET(16.0f), x)); /* inf 0 is a NaN */
    return NEO__FMA(bounded, density, cdf);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vhardswish)(NEO__VF x) {
    NEO__VF six = NEO__SET(6.0f);
    NEO__VF gate = NEO__MAX_(NEO__SET(0.0f), x + 3.0f);
    return x * NEO__MIN_(six, gate) / six;
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vhardswish_slope)(NEO__VF x) {
    NEO__VF three = NEO__SET(3.0f);
    NEO__VF middle = x / three + 0.5f;
    NEO__VF slope = NEO__SELECT(NEO__LT(x, three), middle, NEO__SET(1.0f));
    return NEO__SELECT(NEO__LE(x, NEO__SET(-3.0f)), NEO__SET(0.0f), slope);
}

/* 2 u, u = sqrt(2/pi) (x + 0.044715 x^3): GELU by tanh is x sigmoid(2 u), which has all its digits
   where tanh(u) is near -1. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vgelu_tanh_inner)(NEO__VF x) {
    return x * NEO__FMA(x * x, NEO__SET(0.0713548163f), NEO__SET(1.59576912f));
}
/* SILU, or GELU by tanh: one loop has both, as most of either is the sigmoid. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vgated)(NEO__VF x, int is_gelu) {
    return x * NEO__FN(vsigmoid)(is_gelu ? NEO__FN(vgelu_tanh_inner)(x) : x);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vleaky_relu)(NEO__VF x) {
    return NEO__SELECT(NEO__LE(x, NEO__SET(0.0f)), x * 0.01f, x);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vrelu)(NEO__VF x) { return NEO__MAX_(NEO__SET(0.0f), x); }

NEO__KERNEL void NEO__FN(vec_act_forward)(neo_activation act, const float *z, float *y, int64_t n) {
    switch (act) {
    case NEO_ACT_NONE:
        if (y != z) memmove(y, z, (size_t)n * sizeof *y);
        break;
    case NEO_ACT_RELU: NEO__LOOP(NEO__ST(y, NEO__FN(vrelu)(NEO__LD(z)))); break;
    case NEO_ACT_SIGMOID: NEO__LONG_LOOP(NEO__ST(y, NEO__FN(vsigmoid)(NEO__LD(z)))); break;
    case NEO_ACT_TANH: NEO__LONG_LOOP(NEO__ST(y, NEO__FN(vtanh)(NEO__LD(z)))); break;
    case NEO_ACT_GELU: NEO__LONG_LOOP(NEO__ST(y, NEO__FN(vgelu)(NEO__LD(z)))); break;
    case NEO_ACT_HARDSWISH: NEO__LOOP(NEO__ST(y, NEO__FN(vhardswish)(NEO__LD(z)))); break;
    case NEO_ACT_LEAKY_RELU: NEO__LOOP(NEO__ST(y, NEO__FN(vleaky_relu)(NEO__LD(z)))); break;
    case NEO_ACT_SILU:
    case NEO_ACT_GELU_TANH:
        NEO__LONG_LOOP(NEO__ST(y, NEO__FN(vgated)(NEO__LD(z), act == NEO_ACT_GELU_TANH)));
        break;
    }
}
#if NEO__TRAINS
/* dy times the slope; of RELU, SIGMOID, TANH and LEAKY_RELU from the function's value y. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(vrelu_back)(NEO__VF y, NEO__VF dy) {
    NEO__VF zero = NEO__SET(0.0f);
    return NEO__SELECT(NEO__LE(y, zero), zero, dy);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vsigmoid_back)(NEO__VF y, NEO__VF dy) {
    return dy * (1.0f - y) * y;
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vtanh_back)(NEO__VF y, NEO__VF dy) {
    return dy * NEO__FNMA(y, y, NEO__SET(1.0f));
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vgelu_back)(NEO__VF x, NEO__VF dy) {
    return dy * NEO__FN(vgelu_slope)(x);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vhardswish_back)(NEO__VF x, NEO__VF dy) {
    return dy * NEO__FN(vhardswish_slope)(x);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vsilu_slope)(NEO__VF x, NEO__VF gate) { /* its sigmoid */
    const NEO__VF bounded =
        NEO__MAX_(NEO__SET(-128.0f), NEO__MIN_(NEO__SET(128.0f), x)); /* inf 0 is a NaN */
    return gate * NEO__FMA(bounded, 1.0f - gate, NEO__SET(1.0f));
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vsilu_back)(NEO__VF x, NEO__VF dy) {
    return dy * NEO__FN(vsilu_slope)(x, NEO__FN(vsigmoid)(x));
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vgelu_tanh_back)(NEO__VF x, NEO__VF dy) {
    const NEO__VF bounded =
        NEO__MAX_(NEO__SET(-16.0f), NEO__MIN_(NEO__SET(16.0f), x)); /* inf 0 is a NaN */
    const NEO__VF gate = NEO__FN(vsigmoid)(NEO__FN(vgelu_tanh_inner)(x));
    const NEO__VF slope = /* of 2 u, times x */
        bounded * NEO__FMA(bounded * bounded, NEO__SET(0.214064449f), NEO__SET(1.59576912f));
    return dy * (gate * NEO__FMA(slope, 1.0f - gate, NEO__SET(1.0f)));
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(vleaky_relu_back)(NEO__VF y, NEO__VF dy) {
    return NEO__SELECT(NEO__LE(y, NEO__SET(0.0f)), dy * 0.01f, dy);
}

NEO__KERNEL void NEO__FN(vec_act_backward)(neo_activation act, const float *z, const float *y,
                                      const float *dy, float *dz, int64_t n) {
    switch (act) {
    case NEO_ACT_NONE:
        if (dz != dy) memmove(dz, dy, (size_t)n * sizeof *dz);
        break;
    case NEO_ACT_RELU: NEO__LOOP(NEO__ST(dz, NEO__FN(vrelu_back)(NEO__LD(y), NEO__LD(dy)))); break;
    case NEO_ACT_SIGMOID:
        NEO__LOOP(NEO__ST(dz, NEO__FN(vsigmoid_back)(NEO__LD(y), NEO__LD(dy))));
        break;
    case NEO_ACT_TANH: NEO__LOOP(NEO__ST(dz, NEO__FN(vtanh_back)(NEO__LD(y), NEO__LD(dy)))); break;
    case NEO_ACT_GELU:
        NEO__LONG_LOOP(NEO__ST(dz, NEO__FN(vgelu_back)(NEO__LD(z), NEO__LD(dy))));
        break;
    case NEO_ACT_HARDSWISH:
        NEO__LOOP(NEO__ST(dz, NEO__FN(vhardswish_back)(NEO__LD(z), NEO__LD(dy))));
        break;
    case NEO_ACT_SILU:
        NEO__LONG_LOOP(NEO__ST(dz, NEO__FN(vsilu_back)(NEO__LD(z), NEO__LD(dy))));
        break;
    case NEO_ACT_LEAKY_RELU:
        NEO__LOOP(NEO__ST(dz, NEO__FN(vleaky_relu_back)(NEO__LD(y), NEO__LD(dy))));
        break;
    case NEO_ACT_GELU_TANH:
        NEO__LONG_LOOP(NEO__ST(dz, NEO__FN(vgelu_tanh_back)(NEO__LD(z), NEO__LD(dy))));
        break;
    }
}
#endif

/* ---- sums of one block ---- */
/* NEO__KEEP in a loop's body keeps a vector of a block's terms, NEO__KEPT is their sum, by the
   block's shape: a GPU's lane adds as they come, others store them in t first. */
#if NEO__PASS == NEO__PASS_WARP
#define NEO__KEEP_ROOM 1
#define NEO__KEEP_BEGIN(t) ((t)[0] = 0.0f)
#define NEO__KEEP(t, v)                                                                            \
    ((t)[0] = NEO__SET((t)[0]) + (NEO__LANE < n - i ? (float)(v) : 0.0f)) /* never -0 */
#define NEO__KEPT(t) NEO__FN(tree16)((t)[0])
/* The sum of groups x 16 floats at t, by the block's shape. */
NEO__KERNEL_INLINE float NEO__FN(lane_sum)(const float *t, int64_t groups) {
    NEO__VF sum = NEO__SET(0.0f);
    for (int64_t j = 0; j < groups; j++) sum = sum + NEO__LOAD(t + 16 * j);
    return NEO__FN(tree16)(sum);
}
#else
#define NEO__KEEP_ROOM NEO__BLOCK
#define NEO__KEEP_BEGIN(t) ((void)(t))
#define NEO__KEEP(t, v) NEO__ST(t, v)
#define NEO__KEPT(t) NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n))
/* The sum of groups x 16 floats at t, by the block's shape. */
NEO__KERNEL_INLINE float NEO__FN(lane_sum)(const float *t, int64_t groups) {
    float lane[16];
    for (int l = 0; l < 16; l += NEO__W) {
        NEO__VF sum = NEO__SET(0.0f);
        for (int64_t j = 0; j < groups; j++) sum = sum + NEO__LOAD(t + 16 * j + l);
        NEO__STORE(lane + l, sum);
    }
    return NEO__TREE16(lane);
}
/* Fills up a block of n floats to a multiple of 16 with zeros; returns the groups of 16. */
NEO__KERNEL_INLINE int64_t NEO__FN(pad16)(float *t, int64_t n) {
    int64_t groups = (n + 15) / 16;
    for (int64_t i = n; i < 16 * groups; i++) t[i] = 0.0f;
    return groups;
}
#endif
#if NEO__PASS != NEO__PASS_AVX512
#if NEO__TRAINS
NEO__KERNEL float NEO__FN(vec_block_abs)(const float *x, int64_t n) {
    float t[NEO__KEEP_ROOM];
    NEO__KEEP_BEGIN(t);
    NEO__LOOP(NEO__KEEP(t, NEO__FN(vabs)(NEO__LD(x))));
    return NEO__KEPT(t);
}
NEO__KERNEL float NEO__FN(vec_block_square)(const float *x, int64_t n) {
    float t[NEO__KEEP_ROOM];
#if NEO__PASS == NEO__PASS_AVX2
    if (n == NEO__BLOCK) { /* what most of a gradient is: the same sums without a stop in memory */
        NEO__VF low = NEO__SET(0.0f), high = low;
        for (int64_t i = 0; i < n; i += 2 * NEO__W) {
            const NEO__VF a = NEO__LOAD(x + i), b = NEO__LOAD(x + i + NEO__W);
            __builtin_prefetch(x + i + 1024, 0, 2);
            low = low + a * a, high = high + b * b;
        }
        NEO__STORE(t, low), NEO__STORE(t + NEO__W, high);
        return NEO__TREE16(t);
    }
#endif
    NEO__KEEP_BEGIN(t);
    NEO__LOOP({
        NEO__VF a = NEO__LD(x);
        NEO__KEEP(t, a * a);
    });
    return NEO__KEPT(t);
}
/* As integers the bits of |x| compare like the numbers, and a NaN is above infinity. */
NEO__KERNEL float NEO__FN(vec_block_max)(const float *x, int64_t n) {
    float lane[NEO__W];
    NEO__VI most = NEO__SETI(0);
    NEO__LOOP({
        NEO__VI a = NEO__AS_I(NEO__FN(vabs)(NEO__LD(x)));
        most = NEO__SELECTI(NEO__GTI(a, most), a, most);
    });
    NEO__SPILL(lane, NEO__AS_F(most));
    float max = lane[0];
    for (int l = 1; l < NEO__W; l++)
        if (neo__bits_f32(lane[l]) > neo__bits_f32(max)) max = lane[l];
    return max;
}

/* ---- losses ---- */
NEO__KERNEL int64_t NEO__FN(vec_find_outside)(const float *x, float low, float high, int64_t n) {
    int64_t i = 0;
    NEO__VF vl = NEO__SET(low), vh = NEO__SET(high), zero = NEO__SET(0.0f), one = NEO__SET(1.0f);
    for (; i + NEO__W <= n; i += NEO__W) {
        NEO__VF a = NEO__LOAD(x + i);
        NEO__VF in = NEO__SELECT(NEO__LE(vl, a) & NEO__LE(a, vh), one, zero);
        if (NEO__ANY(NEO__EQ(in, zero))) break;
    }
    for (; i < n; i++)
        if (!(x[i] >= low && x[i] <= high)) return i;
    return n;
}
/* max(x, 0) - x y + log(1 + e^-|x|); its slope sigmoid(x) - y as (1 - y) - sigmoid(-x) for x >= 0,
   so that a saturated right answer has a small gradient and not none. An infinite x with a label
   below 1 loses an infinity, as in torch, and not a NaN. */
NEO__KERNEL void NEO__FN(vec_bce_logits)(const float *x, const float *y, const float *weight,
                                         float g, float *loss, float *dx, int64_t n) {
    NEO__VF zero = NEO__SET(0.0f), one = NEO__SET(1.0f), vg = NEO__SET(g);
    NEO__LONG_LOOP({
        NEO__VF a = NEO__LD(x), label = NEO__LD(y), w = weight ? NEO__LD(weight) : one;
        NEO__VF e = NEO__FN(vexp)(zero - NEO__FN(vabs)(a));
        NEO__VF linear = NEO__FNMA(a, label, NEO__MAX_(zero, a));
        NEO__VF lost = NEO__SELECT(NEO__LT(label, one), a, linear);
        linear = NEO__SELECT(NEO__LT(NEO__SET(FLT_MAX), a), lost, linear);
        NEO__ST(loss, w * (linear + NEO__FN(vlog1p)(e)));
        if (dx) {
            NEO__VF q = e / (one + e);
            NEO__VF d = NEO__SELECT(NEO__LT(a, zero), q - label, one - label - q);
            NEO__ST(dx, d * w * vg);
        }
    });
}
/* Logarithms clamped at -100 and the slope's denominator at 1e-12, as torch does. */
NEO__KERNEL void NEO__FN(vec_bce)(const float *x, const float *y, const float *weight, float g,
                             float *loss, float *dx, int64_t n) {
    NEO__VF one = NEO__SET(1.0f), floor = NEO__SET(-100.0f), vg = NEO__SET(g),
            least = NEO__SET(1e-12f);
    NEO__LONG_LOOP({
        NEO__VF p = NEO__LD(x), label = NEO__LD(y), w = weight ? NEO__LD(weight) : one;
        NEO__VF yes = NEO__MAX_(floor, NEO__FN(vlog)(p));
        NEO__VF no = NEO__MAX_(floor, NEO__FN(vlog1p)(0.0f - p));
        NEO__VF value = (label - one) * no - label * yes;
        NEO__ST(loss, w * value);
        if (dx) {
            NEO__VF d = (p - label) / NEO__MAX_(least, (one - p) * p);
            NEO__ST(dx, d * w * vg);
        }
    });
}
NEO__KERNEL void NEO__FN(vec_mse)(const float *x, const float *y, const float *weight, float g,
                             float *loss, float *dx, int64_t n) {
    NEO__VF one = NEO__SET(1.0f), vg = NEO__SET(g);
    NEO__LOOP({
        NEO__VF w = weight ? NEO__LD(weight) : one, d = NEO__LD(x) - NEO__LD(y);
        NEO__ST(loss, w * (d * d));
        if (dx) NEO__ST(dx, d * (w * vg));
    });
}
#endif
NEO__KERNEL float NEO__FN(vec_dot)(const float *x, const float *y, int64_t count) {
    float sum = 0.0f, t[NEO__KEEP_ROOM];
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
        const float *xb = x + at, *yb = y + at;
        NEO__KEEP_BEGIN(t);
        NEO__LOOP(NEO__KEEP(t, NEO__LD(xb) * NEO__LD(yb)));
        sum = NEO__ADD1(sum, NEO__KEPT(t));
    }
    return sum;
}
NEO__KERNEL float NEO__FN(vec_fm)(const neo__fm_call *call, int64_t sample) {
    const int64_t features = call->features, cols = call->cols, dim = call->dim;
    const float *e = call->e + sample * call->e_row;
    float sum = 0.0f, weights = 0.0f, t[NEO__KEEP_ROOM];
    for (int64_t at = 0; at < dim; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(dim - at, (int64_t)NEO__BLOCK);
        float *out = call->v ? call->v + sample * call->v_row + at : NULL;
        NEO__KEEP_BEGIN(t);
        NEO__LOOP({
            NEO__VF before = NEO__SET(0.0f), pairs = before;
            for (int64_t f = 1; f < features && call->aware; f++) {
                const float *row = e + at + f * cols, *other = e + at + f * dim;
                for (int64_t g = 0; g < f; g++)
                    pairs = NEO__FMA(NEO__LD(row + g * dim), NEO__LD(other + g * cols), pairs);
            }
            for (int64_t f = 0; f < features && !call->aware; f++) {
                NEO__VF factor = NEO__LD(e + at + f * cols);
                pairs = NEO__FMA(factor, before, pairs);
                before = before + factor;
                if (out) NEO__ST(out + f * dim, factor);
            }
            NEO__KEEP(t, pairs);
        });
        sum = NEO__ADD1(sum, NEO__KEPT(t));
    }
    for (int64_t f = 0; call->weighted && f < features; f++)
        weights = NEO__ADD1(weights, e[(f + 1) * cols - 1]);
    return call->weighted ? NEO__ADD1(sum, weights) : sum;
}
#if NEO__TRAINS
NEO__KERNEL void NEO__FN(vec_fm_back)(const neo__fm_call *call, int64_t sample) {
    const int64_t features = call->features, cols = call->cols, dim = call->dim, n = dim;
    const float *e = call->e + sample * call->e_row, dy = call->dy[sample];
    const float *dv = call->dv ? call->dv + sample * call->dv_row : NULL;
    float *de = call->de + sample * call->de_row;
    NEO__LOOP({
        NEO__VF zero = NEO__SET(0.0f), all = zero, slope = NEO__SET(dy);
        for (int64_t f = 0; f < features && call->aware; f++)
            for (int64_t g = 0; g < features; g++) {
                NEO__VF other = NEO__LD(e + g * cols + f * dim);
                NEO__ST(de + f * cols + g * dim, f == g ? zero : slope * other);
            }
        for (int64_t f = 0; f < features && !call->aware; f++) all = all + NEO__LD(e + f * cols);
        for (int64_t f = 0; f < features && !call->aware; f++) {
            NEO__VF rest = all - NEO__LD(e + f * cols);
            if (dv) NEO__ST(de + f * cols, NEO__FMA(slope, rest, NEO__LD(dv + f * dim)));
            else NEO__ST(de + f * cols, slope * rest);
        }
    });
    for (int64_t f = 0; call->weighted && f < features; f++) de[(f + 1) * cols - 1] = dy;
}
NEO__KERNEL float NEO__FN(vec_mse_row)(const float *x, const float *y, float g, float *dx,
                                  int64_t count) {
    float sum = 0.0f, t[NEO__KEEP_ROOM];
    NEO__VF vg = NEO__SET(g);
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
        const float *xb = x + at, *yb = y + at;
        float *db = dx ? dx + at : NULL;
        NEO__KEEP_BEGIN(t);
        NEO__LOOP({
            NEO__VF d = NEO__LD(xb) - NEO__LD(yb);
            NEO__KEEP(t, d * d);
            if (db) NEO__ST(db, d * vg);
        });
        sum = NEO__ADD1(sum, NEO__KEPT(t));
    }
    return sum;
}
#endif
#endif
#if NEO__TRAINS
NEO__KERNEL float NEO__FN(vec_softmax_row)(const float *x, float *max, float *e, int64_t count) {
    float most = x[0], sum = 0.0f, t[NEO__KEEP_ROOM], lane[NEO__W];
    int64_t head = count - count % NEO__W;
    NEO__VF vm = NEO__SET(most);
    for (int64_t i = 0; i < head; i += NEO__W) vm = NEO__MAX_(vm, NEO__LOAD(x + i));
    NEO__SPILL(lane, vm);
    for (int l = 0; l < NEO__W; l++) most = lane[l] > most ? lane[l] : most;
    for (int64_t i = head; i < count; i++) most = x[i] > most ? x[i] : most;
    NEO__SYNC(); /* e may be x */
    vm = NEO__SET(most);
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
        const float *xb = x + at;
        float *eb = e ? e + at : NULL;
        NEO__KEEP_BEGIN(t);
        NEO__LONG_LOOP({
            NEO__VF p = NEO__FN(vexp)(NEO__LD(xb) - vm);
            NEO__KEEP(t, p);
            if (eb) NEO__ST(eb, p);
        });
        sum = NEO__ADD1(sum, NEO__KEPT(t));
    }
    *max = most;
    return sum;
}
NEO__KERNEL void NEO__FN(vec_softmax_grad)(float *e, float sum, float g, int64_t n) {
    NEO__VF vs = NEO__SET(sum), vg = NEO__SET(g);
    NEO__LOOP(NEO__ST(e, NEO__LD(e) / vs * vg));
}
NEO__KERNEL void NEO__FN(vec_softmax_slope)(const float *x, float max, float sum, float g,
                                            float *to, int64_t n) {
    NEO__VF vm = NEO__SET(max), vs = NEO__SET(sum), vg = NEO__SET(g);
    NEO__LONG_LOOP(NEO__ST(to, NEO__FN(vexp)(NEO__LD(x) - vm) / vs * vg));
}
#endif

/* ---- norms along a row: two passes over it for the sums, one for the result ---- */
NEO__KERNEL float NEO__FN(vec_norm_stats)(const float *x, float eps, int centered, float *mean,
                                          int64_t count) {
    float sum = 0.0f, t[NEO__KEEP_ROOM];
    int64_t n;
    for (int64_t at = 0; at < count && centered; at += NEO__BLOCK) {
        const float *xb = x + at;
        n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
        NEO__KEEP_BEGIN(t);
        NEO__LOOP(NEO__KEEP(t, NEO__LD(xb)));
        sum = NEO__ADD1(sum, NEO__KEPT(t));
    }
    *mean = NEO__DIV1(sum, (float)count);
    NEO__VF vm = NEO__SET(*mean);
    sum = 0.0f;
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        const float *xb = x + at;
        n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
        NEO__KEEP_BEGIN(t);
        NEO__LOOP({
            NEO__VF d = NEO__LD(xb) - vm;
            NEO__KEEP(t, d * d);
        });
        sum = NEO__ADD1(sum, NEO__KEPT(t));
    }
    return NEO__DIV1(1.0f, NEO__SQRT1(NEO__ADD1(NEO__DIV1(sum, (float)count), eps)));
}
NEO__KERNEL void NEO__FN(vec_norm_apply)(const float *x, const float *w, const float *b, float mean,
                                         float scale, float *y, int64_t n) {
    NEO__VF vm = NEO__SET(mean), vs = NEO__SET(scale), one = NEO__SET(1.0f), zero = NEO__SET(0.0f);
    NEO__LOOP({
        NEO__VF v = (NEO__LD(x) - vm) * vs;
        NEO__ST(y, NEO__FMA(v, w ? NEO__LD(w) : one, b ? NEO__LD(b) : zero));
    });
}
#if NEO__TRAINS
/* With z the normalised row and g = dy w: dx = scale (g - mean of g - z mean of g z). */
NEO__KERNEL void NEO__FN(vec_norm_backward)(const float *x, const float *w, const float *dy,
                                       const float *stats, int centered, float *dx, int64_t count) {
    float sum = 0.0f, sum_z = 0.0f, t[NEO__KEEP_ROOM], tz[NEO__KEEP_ROOM];
    NEO__VF vm = NEO__SET(centered ? stats[0] : 0.0f), vs = NEO__SET(stats[centered ? 1 : 0]);
    NEO__VF one = NEO__SET(1.0f);
    int64_t n;
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        const float *xb = x + at, *db = dy + at, *wb = w ? w + at : NULL;
        n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
        NEO__KEEP_BEGIN(t);
        NEO__KEEP_BEGIN(tz);
        NEO__LOOP({
            NEO__VF g = NEO__LD(db) * (wb ? NEO__LD(wb) : one);
            NEO__KEEP(t, g);
            NEO__KEEP(tz, g * ((NEO__LD(xb) - vm) * vs));
        });
        sum = NEO__ADD1(sum, NEO__KEPT(t));
        sum_z = NEO__ADD1(sum_z, NEO__KEPT(tz));
    }
    NEO__VF mean = NEO__SET(centered ? NEO__DIV1(sum, (float)count) : 0.0f);
    NEO__VF mean_z = NEO__SET(NEO__DIV1(sum_z, (float)count));
    n = count;
    NEO__LOOP({
        NEO__VF g = NEO__LD(dy) * (w ? NEO__LD(w) : one);
        NEO__VF z = (NEO__LD(x) - vm) * vs;
        NEO__ST(dx, vs * NEO__FNMA(z, mean_z, g - mean));
    });
}
NEO__KERNEL void NEO__FN(vec_norm_add)(const float *x, const float *dy, const float *stats,
                                       int centered, float *dw, float *db, int64_t n) {
    NEO__VF vm = NEO__SET(centered ? stats[0] : 0.0f), vs = NEO__SET(stats[centered ? 1 : 0]);
    NEO__LOOP({
        NEO__VF d = NEO__LD(dy);
        if (dw) NEO__ST(dw, NEO__FMA(d, (NEO__LD(x) - vm) * vs, NEO__LD(dw)));
        if (db) NEO__ST(db, NEO__LD(db) + d);
    });
}
#endif

/* ---- attention: one query, one tile of keys ---- */
/* Lanes i < n, where n >= 1 may be more than all. What the last vector holds beyond them is chosen
   by this mask, for a vector that single floats were stored to is slow to load. */
NEO__KERNEL_INLINE NEO__VM NEO__FN(first_lanes)(int64_t n) {
    static const int32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return NEO__GTI(NEO__SETI((int32_t)n), NEO__LOADI(lane));
}
NEO__KERNEL void NEO__FN(vec_softmax_tile)(float *s, int64_t keys, float scale, float *max,
                                           float *sum, float *out, int64_t n) {
    const float old = *max;
    float most = old, lane[NEO__W];
    NEO__VF vs = NEO__SET(scale), vm = NEO__SET(most), zero = NEO__SET(0.0f);
    NEO__VF first = NEO__SET(NEO__MUL1(s[0], scale)); /* beyond the keys: no new maximum, no slow
                                                         exponential */
    int64_t at;
    NEO__SYNC();
    for (at = 0; at < keys; at += NEO__W) {
        NEO__VF v = NEO__SELECT(NEO__FN(first_lanes)(keys - at), NEO__LOAD(s + at) * vs, first);
        NEO__STORE(s + at, v);
        vm = NEO__MAX_(vm, v);
    }
    NEO__SPILL(lane, vm);
    for (int l = 0; l < NEO__W; l++) most = lane[l] > most ? lane[l] : most;
    vm = NEO__SET(most);
    for (at = 0; at < keys; at += NEO__W) {
        NEO__VF p = NEO__FN(vexp)(NEO__LOAD(s + at) - vm);
        NEO__STORE(s + at, NEO__SELECT(NEO__FN(first_lanes)(keys - at), p, zero));
    }
    for (; at < NEO__KEYS; at += NEO__W) NEO__STORE(s + at, zero);
    const float tile = NEO__FN(lane_sum)(s, NEO__KEYS / 16), before = *sum;
    NEO__SYNC();
    *max = most;
    if (before == 0.0f || old == most) { /* the first tile, or nothing fades */
        *sum = NEO__ADD1(before, tile);
        return;
    }
    NEO__VF vf = NEO__FN(vexp)(old - vm);
    NEO__SPILL(lane, vf);
    *sum = NEO__ADD1(NEO__MUL1(before, lane[0]), tile);
    NEO__LOOP(NEO__ST(out, NEO__LD(out) * vf));
}
NEO__KERNEL float NEO__FN(vec_softmax_end)(float *out, float max, float sum, int64_t n) {
    float lane[NEO__W];
    NEO__VF vs = NEO__SET(sum);
    NEO__SPILL(lane, max + NEO__FN(vlog)(vs));
    NEO__LOOP(NEO__ST(out, NEO__LD(out) / vs));
    return lane[0];
}
#if NEO__TRAINS
NEO__KERNEL void NEO__FN(vec_softmax_tile_grad)(float *s, float *dp, int64_t keys, float scale,
                                           float lse, float delta) {
    NEO__VF vs = NEO__SET(scale), vl = NEO__SET(lse), vd = NEO__SET(delta), zero = NEO__SET(0.0f);
    int64_t i;
    for (i = 0; i < keys; i += NEO__W) {
        NEO__VM seen = NEO__FN(first_lanes)(keys - i);
        NEO__VF p = NEO__FN(vexp)(NEO__LOAD(s + i) * vs - vl);
        NEO__VF ds = p * (NEO__LOAD(dp + i) - vd) * vs;
        NEO__STORE(s + i, NEO__SELECT(seen, p, zero));
        NEO__STORE(dp + i, NEO__SELECT(seen, ds, zero));
    }
    for (; i < NEO__KEYS; i += NEO__W) {
        NEO__STORE(s + i, zero);
        NEO__STORE(dp + i, zero);
    }
}
NEO__KERNEL void NEO__FN(vec_silu_tile)(float *s, float *dp, int64_t keys, float scale, float share,
                                        float slope) {
    NEO__VF vs = NEO__SET(scale), vn = NEO__SET(share), vd = NEO__SET(slope);
    NEO__VF zero = NEO__SET(0.0f);
    int64_t i;
    NEO__SYNC();
    for (i = 0; i < keys; i += NEO__W) {
        NEO__VM seen = NEO__FN(first_lanes)(keys - i);
        NEO__VF x = NEO__LOAD(s + i) * vs, gate = NEO__FN(vsigmoid)(x);
        NEO__STORE(s + i, NEO__SELECT(seen, x * gate * vn, zero));
        if (!dp) continue;
        NEO__VF ds = NEO__LOAD(dp + i) * NEO__FN(vsilu_slope)(x, gate) * vd;
        NEO__STORE(dp + i, NEO__SELECT(seen, ds, zero));
    }
    for (; i < NEO__KEYS; i += NEO__W) {
        NEO__STORE(s + i, zero);
        if (dp) NEO__STORE(dp + i, zero);
    }
}

/* ---- optimizer steps: torch.optim's formulas, products and sums fused where they meet. A rule has
   a vector of weights, gradients and states in registers and returns the new weights; NEO__RULE
   makes its loop over n elements, with the states that are there. ---- */
#define NEO__RULE(name, first_there, second_there)                                                 \
    NEO__KERNEL void NEO__FN(vec_##name)(const neo__step *step, float *w, const float *g, float *a,\
                                         float *b, int64_t n) {                                    \
        const neo__step s = *step;                                                                 \
        const int first = first_there, second = second_there;                                      \
        NEO__LOOP({                                                                                \
            NEO__VF x = NEO__SET(0.0f), y = x;                                                     \
            if (first) x = NEO__LD(a);                                                             \
            if (second) y = NEO__LD(b);                                                            \
            NEO__ST(w, NEO__FN(rule_##name)(&s, NEO__LD(w), NEO__LD(g), &x, &y));                  \
            if (first) NEO__ST(a, x);                                                              \
            if (second) NEO__ST(b, y);                                                             \
        });                                                                                        \
        (void)a, (void)b;                                                                          \
    }
/* The clipped gradient, with weight decay. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(decayed)(const neo__step *s, NEO__VF w, NEO__VF g) {
    return NEO__FMA(NEO__SET(s->weight_decay), w, NEO__SET(s->clip) * g);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(rule_sgd)(const neo__step *s, NEO__VF w, NEO__VF g, NEO__VF *buf,
                                             NEO__VF *none) {
    NEO__VF momentum = NEO__SET(s->momentum), d = NEO__FN(decayed)(s, w, g);
    (void)none;
    if (s->momentum != 0.0f) {
        *buf = s->first ? d : NEO__FMA(momentum, *buf, NEO__SET(s->undamped) * d);
        d = s->nesterov ? NEO__FMA(momentum, *buf, d) : *buf;
    }
    return NEO__FNMA(NEO__SET(s->lr), d, w);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(rule_adagrad)(const neo__step *s, NEO__VF w, NEO__VF g,
                                                 NEO__VF *sum, NEO__VF *none) {
    NEO__VF d = NEO__FN(decayed)(s, w, g);
    (void)none;
    *sum = NEO__FMA(d, d, *sum);
    return NEO__FNMA(NEO__SET(s->lr), d / (NEO__SQRT(*sum) + NEO__SET(s->eps)), w);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(rule_adam)(const neo__step *s, NEO__VF w, NEO__VF g, NEO__VF *m,
                                              NEO__VF *v) {
    NEO__VF d = NEO__FN(decayed)(s, w, g);
    *m = NEO__FMA(NEO__SET(s->rest1), d - *m, *m);
    *v = NEO__FMA(NEO__SET(s->rest2) * d, d, NEO__SET(s->beta2) * *v);
    NEO__VF below = NEO__SQRT(*v) / NEO__SET(s->root_unbias2) + NEO__SET(s->eps);
    return NEO__FNMA(NEO__SET(s->unbias1), *m / below, NEO__SET(s->keep) * w);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(rule_rmsprop)(const neo__step *s, NEO__VF w, NEO__VF g,
                                                 NEO__VF *v, NEO__VF *buf) {
    NEO__VF d = NEO__FN(decayed)(s, w, g);
    *v = NEO__FMA(NEO__SET(s->rest2) * d, d, NEO__SET(s->beta2) * *v);
    d = d / (NEO__SQRT(*v) + NEO__SET(s->eps));
    if (s->momentum != 0.0f) d = *buf = NEO__FMA(NEO__SET(s->momentum), *buf, d);
    return NEO__FNMA(NEO__SET(s->lr), d, w);
}
/* Rows of tables have this rule, too. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(ftrl)(const neo__ftrl *step, NEO__VF g, NEO__VF w, NEO__VF *sum,
                                         NEO__VF *v) {
    NEO__VF lr = NEO__SET(step->lr), l1 = NEO__SET(step->l1), l2 = NEO__SET(step->l2);
    NEO__VF square = NEO__FMA(g, g, *sum), p = NEO__SQRT(square) + NEO__SET(step->beta), d = g + *v;
    /* A sum of squares that is infinite keeps a weight of 0. */
    NEO__VF held = NEO__SELECT(NEO__EQ(w, NEO__SET(0.0f)), NEO__SET(0.0f), p * w);
    NEO__VF z = NEO__FNMA(held, NEO__SET(step->inverse), d);
    NEO__VF c = NEO__MIN_(l1, NEO__MAX_(NEO__SET(-step->l1), z));
    NEO__VF to = lr * (c - NEO__FMA(l2, w, d)) / NEO__FMA(lr, l2, p) + w;
    to = NEO__SELECT(NEO__EQ(c, z), NEO__SET(0.0f), to);
    *sum = square;
    *v = NEO__FNMA(l2, to, c);
    return to;
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(rule_ftrl)(const neo__step *s, NEO__VF w, NEO__VF g,
                                              NEO__VF *sum, NEO__VF *v) {
    return NEO__FN(ftrl)(&s->ftrl, NEO__SET(s->clip) * g, w, sum, v);
}
#if NEO__PASS != NEO__PASS_WARP /* a thread of a GPU has a few elements, see >>cuda-optim */
NEO__RULE(sgd, s.momentum != 0.0f, 0)
NEO__RULE(adagrad, 1, 0)
NEO__RULE(adam, 1, 1)
NEO__RULE(rmsprop, 1, s.momentum != 0.0f)
NEO__RULE(ftrl, 1, 1)
#endif
#undef NEO__RULE
#if NEO__PASS != NEO__PASS_AVX512
NEO__KERNEL void NEO__FN(vec_lamb_moments)(const neo__step *s, const float *g, float *m, float *v,
                                      int64_t n) {
    NEO__VF clip = NEO__SET(s->clip);
    NEO__VF rest1 = NEO__SET(s->rest1), beta2 = NEO__SET(s->beta2), rest2 = NEO__SET(s->rest2);
    NEO__LOOP({
        NEO__VF d = clip * NEO__LD(g), mean = NEO__LD(m);
        NEO__ST(m, NEO__FMA(rest1, d - mean, mean));
        NEO__ST(v, NEO__FMA(rest2 * d, d, beta2 * NEO__LD(v)));
    });
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(lamb_direction)(const neo__step *s, NEO__VF w, NEO__VF m,
                                                   NEO__VF v) {
    NEO__VF below = NEO__SQRT(v) / s->root_unbias2 + s->eps;
    return NEO__FMA(NEO__SET(s->weight_decay), w, s->unbias1 * m / below);
}
NEO__KERNEL float NEO__FN(vec_lamb_square)(const neo__step *s, const float *w, const float *m,
                                      const float *v, int64_t n) {
    float t[NEO__KEEP_ROOM];
    NEO__KEEP_BEGIN(t);
    NEO__LOOP({
        NEO__VF d = NEO__FN(lamb_direction)(s, NEO__LD(w), NEO__LD(m), NEO__LD(v));
        NEO__KEEP(t, d * d);
    });
    return NEO__KEPT(t);
}
/* After vec_lamb_moments: it leaves the states, and reads no gradient. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(rule_lamb)(const neo__step *s, NEO__VF w, NEO__VF g, NEO__VF *m,
                                              NEO__VF *v) {
    (void)g;
    return NEO__FNMA(NEO__SET(s->lr), NEO__FN(lamb_direction)(s, w, *m, *v), w);
}
NEO__KERNEL void NEO__FN(vec_lamb)(const neo__step *step, float *w, const float *g, float *a,
                                   float *b, int64_t n) {
    const neo__step s = *step;
    (void)g;
    NEO__LOOP({
        NEO__VF m = NEO__LD(a), v = NEO__LD(b);
        NEO__ST(w, NEO__FN(rule_lamb)(&s, NEO__LD(w), m, &m, &v));
    });
}
#endif
#endif

#if NEO__PASS != NEO__PASS_WARP
static const neo__vec_kernels NEO__FN(vec_kernels) = {
    NEO__FN(vec_add),
    NEO__FN(vec_mul),
    NEO__FN(vec_addcmul),
    NEO__FN8(vec_dot),
    NEO__FN8(vec_fm),
    NEO__TRAIN(NEO__FN8(vec_fm_back)),
    NEO__FN(vec_act_forward),
    NEO__TRAIN(NEO__FN(vec_act_backward)),
    NEO__TRAIN(NEO__FN8(vec_find_outside)),
    NEO__TRAIN(NEO__FN8(vec_bce_logits)),
    NEO__TRAIN(NEO__FN8(vec_bce)),
    NEO__TRAIN(NEO__FN8(vec_mse)),
    NEO__TRAIN(NEO__FN8(vec_mse_row)),
    NEO__TRAIN(NEO__FN(vec_softmax_row)),
    NEO__TRAIN(NEO__FN(vec_softmax_grad)),
    NEO__TRAIN(NEO__FN(vec_softmax_slope)),
    NEO__FN(vec_norm_stats),
    NEO__FN(vec_norm_apply),
    NEO__TRAIN(NEO__FN(vec_norm_backward)),
    NEO__TRAIN(NEO__FN(vec_norm_add)),
    NEO__FN(vec_softmax_tile),
    NEO__FN(vec_softmax_end),
    NEO__TRAIN(NEO__FN(vec_softmax_tile_grad)),
    NEO__TRAIN(NEO__FN(vec_silu_tile)),
    NEO__TRAIN(NEO__FN8(vec_block_abs)),
    NEO__TRAIN(NEO__FN8(vec_block_square)),
    NEO__TRAIN(NEO__FN8(vec_block_max)),
    {NEO__TRAIN(NEO__FN(vec_sgd)), NEO__TRAIN(NEO__FN(vec_adagrad)),
     NEO__TRAIN(NEO__FN(vec_adam)), NEO__TRAIN(NEO__FN(vec_adam)), NEO__TRAIN(NEO__FN8(vec_lamb)),
     NEO__TRAIN(NEO__FN(vec_rmsprop)), NEO__TRAIN(NEO__FN(vec_ftrl))},
    NEO__TRAIN(NEO__FN8(vec_lamb_moments)),
    NEO__TRAIN(NEO__FN8(vec_lamb_square)),
};
#endif

/* ---- >>kernels-tensor: conversions, random numbers ---- */
#if NEO__PASS == NEO__PASS_SCALAR || NEO__PASS == NEO__PASS_WARP
#define NEO__STORE_H(p, v) (((uint16_t *)(void *)(p))[NEO__LANE] = (uint16_t)(v))
#define NEO__LOAD_H(p) ((uint32_t)((const uint16_t *)(const void *)(p))[NEO__LANE])
#define NEO__LOAD_F16(p) ((NEO__VF)neo__f32_from_f16((uint16_t)NEO__LOAD_H(p)))
NEO__KERNEL void NEO__FN(f16_from_f32s)(uint16_t *y, const float *x, int64_t n) {
    for (int64_t i = NEO__LANE; i < n; i += NEO__W) y[i] = neo__f16_from_f32(x[i]);
}
NEO__KERNEL void NEO__FN(bf16_from_f32s)(uint16_t *y, const float *x, int64_t n) {
    for (int64_t i = NEO__LANE; i < n; i += NEO__W) y[i] = neo__bf16_from_f32(x[i]);
}
#if NEO__PASS == NEO__PASS_SCALAR
NEO__KERNEL void NEO__FN(f32_from_f16s)(float *y, const uint16_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = neo__f32_from_f16(x[i]);
}
NEO__KERNEL void NEO__FN(f32_from_bf16s)(float *y, const uint16_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = neo__f32_from_bf16(x[i]);
}
#endif

#else
/* Vectors of NEO__W 16-bit numbers: f16 by the processor's conversion, which rounds to nearest
   even and keeps denormals; bf16 by integer arithmetic, stored from the low halves of 32-bit
   lanes. */
#if NEO__PASS == NEO__PASS_AVX512
#define NEO__STORE_H(p, v)                                                                         \
    _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtepi32_epi16((__m512i)(v)))
#define NEO__LOAD_H(p)                                                                             \
    ((NEO__VI)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))))
#define NEO__STORE_F16(p, v)                                                                      \
    _mm256_storeu_si256(                                                                          \
        (__m256i *)(void *)(p),                                                                   \
        _mm512_maskz_cvtps_ph(0xFFFFu, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define NEO__LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__STORE_H(p, v)                                                                         \
    _mm_storeu_si128((__m128i *)(void *)(p),                                                       \
                     _mm_packus_epi32(_mm256_castsi256_si128((__m256i)(v)),                        \
                                      _mm256_extracti128_si256((__m256i)(v), 1)))
#define NEO__LOAD_H(p)                                                                             \
    ((NEO__VI)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define NEO__STORE_F16(p, v)                                                                      \
    _mm_storeu_si128((__m128i *)(void *)(p),                                                      \
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define NEO__LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#else
#define NEO__STORE_H(p, v) vst1_u16((uint16_t *)(void *)(p), vmovn_u32(v))
#define NEO__LOAD_H(p) vmovl_u16(vld1_u16((const uint16_t *)(const void *)(p)))
#define NEO__STORE_F16(p, v) vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)))
#define NEO__LOAD_F16(p)                                                                          \
    vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)(p))))
#endif

NEO__KERNEL void NEO__FN(f16_from_f32s)(uint16_t *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W) NEO__STORE_F16(y + i, NEO__LOAD(x + i));
    for (; i < n; i++) y[i] = neo__f16_from_f32(x[i]);
}
NEO__KERNEL void NEO__FN(f32_from_f16s)(float *y, const uint16_t *x, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W) NEO__STORE(y + i, NEO__LOAD_F16(x + i));
    for (; i < n; i++) y[i] = neo__f32_from_f16(x[i]);
}
NEO__KERNEL_INLINE NEO__VI NEO__FN(bf16_near)(NEO__VI u) {
    NEO__VI top = u >> 16;
    NEO__VI lsb = top & 1u;
    NEO__VI rounded = (u + lsb + 0x7FFFu) >> 16;
    NEO__VM nan = NEO__GTI(u & 0x7FFFFFFFu, NEO__SETI(0x7F800000));
    return NEO__SELECTI(nan, top | 0x40u, rounded);
}
NEO__KERNEL void NEO__FN(bf16_from_f32s)(uint16_t *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W)
        NEO__STORE_H(y + i, NEO__FN(bf16_near)(NEO__AS_I(NEO__LOAD(x + i))));
    for (; i < n; i++) y[i] = neo__bf16_from_f32(x[i]);
}
NEO__KERNEL void NEO__FN(f32_from_bf16s)(float *y, const uint16_t *x, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W) {
        NEO__VI u = NEO__LOAD_H(x + i) << 16;
        NEO__VM nan = NEO__GTI(u & 0x7FFFFFFFu, NEO__SETI(0x7F800000));
        NEO__STORE(y + i, NEO__AS_F(NEO__SELECTI(nan, u | 0x400000u, u)));
    }
    for (; i < n; i++) y[i] = neo__f32_from_bf16(x[i]);
}
#endif

#if NEO__TRAINS
/* Philox in lanes: a block in each. mul_wide: the high and low halves of the products of unsigned
   lanes; x86 multiplies even lanes alone: a block in two, and what is in the odd one until the end
   does not matter. NEO__DEAL: even and odd elements of two vectors, in an order that
   NEO__ZIP_LOW and _HIGH undo. */
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__DEAL(a, b, even, odd) ((even) = (a), (odd) = (b))
#define NEO__ZIP_LOW(a, b) (a)
#define NEO__ZIP_HIGH(a, b) (b)
#elif NEO__PASS == NEO__PASS_NEON
#define NEO__DEAL(a, b, even, odd) ((even) = vuzp1q_u32(a, b), (odd) = vuzp2q_u32(a, b))
#define NEO__ZIP_LOW(a, b) vzip1q_f32(a, b)
#define NEO__ZIP_HIGH(a, b) vzip2q_f32(a, b)
NEO__KERNEL_INLINE void NEO__FN(mul_wide)(NEO__VI a, uint32_t m, NEO__VI *hi, NEO__VI *lo) {
    NEO__VI low = (NEO__VI)vmull_u32(vget_low_u32(a), vdup_n_u32(m));
    NEO__VI high = (NEO__VI)vmull_u32(vget_high_u32(a), vdup_n_u32(m));
    *hi = vuzp2q_u32(low, high);
    *lo = vuzp1q_u32(low, high);
}
NEO__KERNEL_INLINE void NEO__FN(store_blocks)(float *y, const NEO__VF v[4]) {
    float32x4x4_t all = {{v[0], v[1], v[2], v[3]}};
    vst4q_f32(y, all);
}
#elif NEO__PASS != NEO__PASS_WARP
#define NEO__DEAL(a, b, even, odd)                                                                 \
    ((even) = (NEO__VI)NEO__MM(shuffle_ps)((NEO__VF)(a), (NEO__VF)(b), 0x88),                      \
     (odd) = (NEO__VI)NEO__MM(shuffle_ps)((NEO__VF)(a), (NEO__VF)(b), 0xDD))
#define NEO__ZIP_LOW(a, b) NEO__MM(unpacklo_ps)(a, b)
#define NEO__ZIP_HIGH(a, b) NEO__MM(unpackhi_ps)(a, b)
#if NEO__PASS == NEO__PASS_AVX512
#define NEO__XOR3(a, b, c)                                                                         \
    ((NEO__VI)_mm512_ternarylogic_epi32((__m512i)(a), (__m512i)(b), (__m512i)(c), 0x96))
#define NEO__MERGE_EVEN(even, odd)                                                                 \
    ((NEO__VI)_mm512_mask_shuffle_epi32((__m512i)(even), 0xAAAA, (__m512i)(odd),                   \
                                        (_MM_PERM_ENUM)0xA0))
#define NEO__MUL_EVEN(a, b) ((NEO__VI)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define NEO__HIGH_WORD(a) ((NEO__VI)_mm512_srli_epi64((__m512i)(a), 32))
#define NEO__UNPACK64(half, a, b)                                                                  \
    ((NEO__VF)_mm512_unpack##half##_epi64((__m512i)(a), (__m512i)(b)))
#define NEO__SPREAD(v)                                                                             \
    ((NEO__VI)_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7),        \
                                       (__m512i)(v)))
#define NEO__LOAD_EVEN(p)                                                                          \
    NEO__SPREAD(_mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)(p))))
#else
#define NEO__MERGE_EVEN(even, odd)                                                                 \
    ((NEO__VI)_mm256_blend_epi32((__m256i)(even), _mm256_slli_epi64((__m256i)(odd), 32), 0xAA))
#define NEO__MUL_EVEN(a, b) ((NEO__VI)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define NEO__HIGH_WORD(a) ((NEO__VI)_mm256_srli_epi64((__m256i)(a), 32))
#define NEO__UNPACK64(half, a, b)                                                                  \
    ((NEO__VF)_mm256_unpack##half##_epi64((__m256i)(a), (__m256i)(b)))
#define NEO__SPREAD(v) ((NEO__VI)_mm256_permute4x64_epi64((__m256i)(v), 0xD8))
#define NEO__LOAD_EVEN(p)                                                                          \
    NEO__SPREAD(_mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#endif
NEO__KERNEL_INLINE void NEO__FN(mul_wide)(NEO__VI a, uint32_t m, NEO__VI *hi, NEO__VI *lo) {
    *lo = NEO__MUL_EVEN(a, NEO__SETI(m));
    *hi = NEO__HIGH_WORD(*lo);
}
#endif

#if NEO__PASS != NEO__PASS_SCALAR && NEO__PASS != NEO__PASS_WARP
/* Keep the order of the text: gcc otherwise mixes independent steps until registers run out. */
#if NEO__PASS == NEO__PASS_NEON
#define NEO__PIN(x) __asm__ volatile("" : "+w"(x))
#else
#define NEO__PIN(x) __asm__ volatile("" : "+v"(x))
#endif
#ifndef NEO__XOR3
#define NEO__XOR3(a, b, c) ((a) ^ ((b) ^ (c)))
#endif
NEO__KERNEL_INLINE void NEO__FN(philox_round)(NEO__VI x[4], NEO__VI k0, NEO__VI k1) {
    NEO__VI hi, lo0, lo1;
    NEO__FN(mul_wide)(x[2], NEO__PHILOX_M1, &hi, &lo1);
    NEO__VI y = NEO__XOR3(hi, x[1], k0);
    NEO__FN(mul_wide)(x[0], NEO__PHILOX_M0, &hi, &lo0);
    x[2] = NEO__XOR3(hi, x[3], k1);
    x[0] = y;
    x[1] = lo1;
    x[3] = lo0;
}
/* The round keys of blocks whose numbers share their high half, unless they are `apart`: k[2 r] and
   k[2 r + 1] are for x[0] and x[2] after round r. Added to those of the first rounds is what is the
   same in all blocks. */
NEO__KERNEL_INLINE void NEO__FN(philox_keys)(const neo__random_key *key, uint32_t high,
                                             const int apart, uint32_t k[20]) {
    uint32_t k0 = (uint32_t)key->seed, k1 = (uint32_t)(key->seed >> 32);
    for (int r = 0; r < 10; r++, k0 += NEO__PHILOX_W0, k1 += NEO__PHILOX_W1)
        k[2 * r] = k0, k[2 * r + 1] = k1;
    uint64_t p1 = (uint64_t)NEO__PHILOX_M1 * (uint32_t)key->h;
    k[0] ^= (uint32_t)(p1 >> 32);
    uint64_t p0 = apart ? 0 : (uint64_t)NEO__PHILOX_M0 * (high ^ k[0]);
    k[1] ^= (uint32_t)(key->h >> 32);
    k[2] ^= (uint32_t)p1;
    k[3] ^= (uint32_t)(p0 >> 32);
    k[5] ^= (uint32_t)p0;
}
/* The words of `blocks` blocks, 16 or (AVX-512) 32, whose numbers are at `number`, their low halves
   unless they are `apart`; of several vectors at a time, as a round takes long. */
NEO__KERNEL_INLINE void NEO__FN(philox_blocks)(const float *number, const uint32_t *k,
                                               const int blocks, const int apart, float *y) {
#ifdef NEO__MUL_EVEN
    enum { BLOCKS = NEO__W / 2 };
#else
    enum { BLOCKS = NEO__W };
#endif
    const int vectors = blocks / BLOCKS;
    NEO__VI x[4][4];
    NEO__EACH(v, vectors) {
        NEO__VI n, hi0, hi1, high = NEO__SETI(0);
#ifdef NEO__MUL_EVEN
        if (apart) {
            n = NEO__SPREAD(NEO__LOADI(number + 2 * v * BLOCKS));
            high = NEO__HIGH_WORD(n);
        } else n = NEO__LOAD_EVEN(number + v * BLOCKS);
#else
        if (apart)
            NEO__DEAL(NEO__LOADI(number + 2 * v * BLOCKS),
                      NEO__LOADI(number + (2 * v + 1) * BLOCKS), n, high);
        else n = NEO__LOADI(number + v * BLOCKS);
#endif
        NEO__FN(mul_wide)(n, NEO__PHILOX_M0, &hi0, &x[v][3]);
        NEO__FN(mul_wide)(hi0 ^ k[1], NEO__PHILOX_M1, &hi1, &x[v][1]);
        x[v][0] = hi1 ^ k[2];
        x[v][2] = x[v][3] ^ k[3];
        x[v][3] = NEO__SETI(0);
        if (apart) {
            NEO__FN(mul_wide)(high ^ k[0], NEO__PHILOX_M0, &hi0, &x[v][3]);
            x[v][2] ^= hi0;
        }
    }
    NEO__EACH(r, 8)
        NEO__EACH(v, vectors) {
            NEO__FN(philox_round)(x[v], NEO__SETI(k[2 * r + 4]), NEO__SETI(k[2 * r + 5]));
            NEO__PIN(x[v][0]);
            NEO__PIN(x[v][2]);
        }
    NEO__EACH(v, vectors) {
        float *to = y + v * 4 * BLOCKS;
#ifdef NEO__MUL_EVEN
        NEO__VI a = NEO__MERGE_EVEN(x[v][0], x[v][1]), b = NEO__MERGE_EVEN(x[v][2], x[v][3]);
        NEO__STORE(to, NEO__UNPACK64(lo, a, b));
        NEO__STORE(to + NEO__W, NEO__UNPACK64(hi, a, b));
#else
        NEO__VF w[4];
        for (int i = 0; i < 4; i++) w[i] = NEO__AS_F(x[v][i]);
        NEO__FN(store_blocks)(to, w);
#endif
    }
}
/* 0, 1, 2 ... */
NEO__KERNEL_INLINE NEO__VI NEO__FN(lane_numbers)(void) {
    static const uint32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return NEO__LOADI(lane);
}
/* The words of blocks [first, first + 16), of which those below the next multiple of 2^32 count;
   or of 16 numbers of their own. */
NEO__KERNEL_FAR void NEO__FN(block_words)(const neo__random_key *key, uint64_t first,
                                          const uint64_t *numbers, float *y) {
    uint32_t k[20];
    float number[32];
    if (numbers) {
        memcpy(number, numbers, sizeof number);
        NEO__FN(philox_keys)(key, 0, 1, k);
        NEO__FN(philox_blocks)(number, k, 16, 1, y);
        return;
    }
    NEO__EACH(c, 16 / NEO__W)
        NEO__STORE(number + c * NEO__W,
                   NEO__AS_F(NEO__FN(lane_numbers)() + ((uint32_t)first + (uint32_t)(c * NEO__W))));
    NEO__FN(philox_keys)(key, (uint32_t)(first >> 32), 0, k);
    NEO__FN(philox_blocks)(number, k, 16, 0, y);
}
#elif NEO__PASS == NEO__PASS_SCALAR
NEO__KERNEL_INLINE void NEO__FN(block_words)(const neo__random_key *key, uint64_t first,
                                             const uint64_t *numbers, float *y) {
    uint32_t word[4];
    neo__random_block(key, numbers ? *numbers : first, word);
    for (int i = 0; i < 4; i++) y[i] = neo__f32_bits(word[i]);
}
#endif
/* Box and Muller: two normal numbers from two words. The radius is sqrt(-2 log u) of u = (w + 1)
   2^-32 in (0, 1]; the angle is 2 pi n 2^-24. */
NEO__KERNEL_INLINE void NEO__FN(box_muller)(NEO__VI wr, NEO__VI wa, NEO__VF *z0, NEO__VF *z1) {
    NEO__VF high = NEO__TO_F(wr >> 16), sine, cosine;
    NEO__VF low = NEO__TO_F((wr & 0xFFFFu) + 1u);
    NEO__VF u = NEO__FMA(high, NEO__SET(65536.0f), low) * 0x1p-32f;
    NEO__VF r = NEO__SQRT(-2.0f * NEO__FN(vlog)(u));
    NEO__VF angle = NEO__TO_F(wa >> 8) * 0x1.921fb6p-22f;
    NEO__FN(vsincos)(angle, &sine, &cosine);
    *z0 = r * cosine;
    *z1 = r * sine;
}
#if NEO__PASS != NEO__PASS_WARP
/* Blocks of normal numbers, or of uniform ones of at most `top`: their words first, 16 blocks at a
   time, of which all are kept but those past the end or past a multiple of 2^32. */
NEO__KERNEL_INLINE void NEO__FN(random_blocks)(float *y, int64_t blocks, const neo__random_key *key,
                                               uint64_t first, const uint64_t *number, float a,
                                               float scale, float top, const int is_normal) {
    enum { MOST = NEO__PASS == NEO__PASS_SCALAR ? 1 : 16 };
    for (int64_t n; blocks > 0; y += 4 * n, first += (uint64_t)n, blocks -= n) {
        float ends[4 * MOST];
        n = NEO__MIN(blocks, (int64_t)MOST);
        if (!number) n = NEO__MIN(n, (int64_t)(UINT32_MAX - (uint32_t)first) + 1);
        float *to = n == MOST ? y : ends;
        NEO__FN(block_words)(key, first, number, to);
        if (number) number += n;
        NEO__EACH(i, 2 * MOST / NEO__W) {
            float *at = to + 2 * i * NEO__W;
            NEO__VI w0 = NEO__AS_I(NEO__LOAD(at)), w1 = NEO__AS_I(NEO__LOAD(at + NEO__W));
            NEO__VF v0, v1;
            if (is_normal) {
                NEO__VI even, odd;
                NEO__VF z0, z1;
                NEO__DEAL(w0, w1, even, odd);
                NEO__FN(box_muller)(even, odd, &z0, &z1);
                v0 = NEO__ZIP_LOW(z0, z1);
                v1 = NEO__ZIP_HIGH(z0, z1);
            } else {
                v0 = NEO__TO_F(w0 >> 8) * 0x1p-24f;
                v1 = NEO__TO_F(w1 >> 8) * 0x1p-24f;
            }
            v0 = NEO__FMA(v0, NEO__SET(scale), NEO__SET(a));
            v1 = NEO__FMA(v1, NEO__SET(scale), NEO__SET(a));
            NEO__STORE(at, is_normal ? v0 : NEO__MIN_(v0, NEO__SET(top)));
            NEO__STORE(at + NEO__W, is_normal ? v1 : NEO__MIN_(v1, NEO__SET(top)));
        }
        if (n < MOST) memcpy(y, ends, (size_t)n * 4 * sizeof *y);
    }
}
NEO__KERNEL void NEO__FN(random_uniform)(float *y, int64_t blocks, const neo__random_key *key,
                                         uint64_t first, const uint64_t *number, float a,
                                         float scale, float top) {
    NEO__FN(random_blocks)(y, blocks, key, first, number, a, scale, top, 0);
}
NEO__KERNEL void NEO__FN(random_normal)(float *y, int64_t blocks, const neo__random_key *key,
                                        uint64_t first, const uint64_t *number, float a,
                                        float scale) {
    NEO__FN(random_blocks)(y, blocks, key, first, number, a, scale, 0.0f, 1);
}
#endif
#endif

#if NEO__PASS != NEO__PASS_WARP
static const neo__tensor_kernels NEO__FN(tensor_kernels) = {
    NEO__FN(f16_from_f32s),  NEO__FN(f32_from_f16s),  NEO__FN(bf16_from_f32s),
    NEO__FN(f32_from_bf16s), NEO__TRAIN(NEO__FN(random_uniform)),
    NEO__TRAIN(NEO__FN(random_normal)),
};
#endif
#endif
#if NEO__PASS != NEO__PASS_WARP
/* ---- >>kernels-gemm ----
   The tile: every accumulator is a named variable, so that the compiler keeps it in a register.
   Rows are listed as (row, row / 3, row % 3): three rows share a base pointer, which is what x86
   addressing offers. */
#define NEO__ROW_LIST_2(X) X(0, 0, 0) X(1, 0, 1)
#define NEO__ROW_LIST_4(X) NEO__ROW_LIST_2(X) X(2, 0, 2) X(3, 1, 0)
#define NEO__ROW_LIST_6(X) NEO__ROW_LIST_4(X) X(4, 1, 1) X(5, 1, 2)
#define NEO__ROW_LIST_12(X)                                                                        \
    NEO__ROW_LIST_6(X) X(6, 2, 0) X(7, 2, 1) X(8, 2, 2) X(9, 3, 0) X(10, 3, 1) X(11, 3, 2)
#if NEO__PASS == NEO__PASS_AVX512 && !defined(NEO_INFERENCE)
#define NEO__ROWS 14 /* 28 sums, 2 of b, 1 of a: 31 of 32 registers */
#define NEO__ROW_LIST(X) NEO__ROW_LIST_12(X) X(12, 4, 0) X(13, 4, 1)
#define NEO__GROUP_LIST(X) X(0) X(1) X(2) X(3) X(4)
#define NEO__TILE_SIZES(X) X(1) X(2) X(4) X(6) X(8) X(10) X(12) X(14) X(13)
#elif NEO__PASS == NEO__PASS_AVX2 || NEO__PASS == NEO__PASS_AVX512
#define NEO__ROWS 6 /* 12 + 2 + 1 of 16 */
#define NEO__ROW_LIST(X) NEO__ROW_LIST_6(X)
#define NEO__GROUP_LIST(X) X(0) X(1)
#define NEO__TILE_SIZES(X) X(1) X(2) X(4) X(6)
#elif NEO__PASS == NEO__PASS_NEON
#define NEO__ROWS 12 /* 24 + 2 + 1 of 32 */
#define NEO__ROW_LIST(X) NEO__ROW_LIST_12(X)
#define NEO__GROUP_LIST(X) X(0) X(1) X(2) X(3)
#define NEO__TILE_SIZES(X) X(1) X(2) X(4) X(6) X(8) X(10) X(12)
#elif defined(NEO_INFERENCE)
#define NEO__ROWS 2
#define NEO__ROW_LIST(X) NEO__ROW_LIST_2(X)
#define NEO__GROUP_LIST(X) X(0)
#define NEO__TILE_SIZES(X) X(1) X(2)
#else
#define NEO__ROWS 4
#define NEO__ROW_LIST(X) NEO__ROW_LIST_4(X)
#define NEO__GROUP_LIST(X) X(0) X(1)
#define NEO__TILE_SIZES(X) X(1) X(2) X(4)
#endif

#define NEO__FETCH(p) __builtin_prefetch(p, 0, 2) /* to the second level */
#define NEO__TILE_DECLARE(r, g, i) NEO__VF c##r##_0 = zero, c##r##_1 = zero;
#define NEO__TILE_INIT(r, g, i)                                                                    \
    if (rows > r) {                                                                                \
        c##r##_0 = NEO__LOAD(init + r * init_row + j);                                             \
        if (vecs > 1) c##r##_1 = NEO__LOAD(init + r * init_row + j + NEO__W);                      \
    }
#define NEO__TILE_FMA(r, g, i)                                                                     \
    if (rows > r) {                                                                                \
        NEO__VF av = NEO__SET(a##g[i * a_row]);                                                    \
        c##r##_0 = NEO__FMA(av, b0, c##r##_0);                                                     \
        if (vecs > 1) c##r##_1 = NEO__FMA(av, b1, c##r##_1);                                       \
    }
#define NEO__TILE_MERGE(r, g, i)                                                                   \
    if (rows > r) {                                                                                \
        c##r##_0 = NEO__LOAD(merge + r * vecs * NEO__W) + c##r##_0;                                \
        if (vecs > 1) c##r##_1 = NEO__LOAD(merge + (r * vecs + 1) * NEO__W) + c##r##_1;            \
    }
#define NEO__TILE_BIAS(r, g, i)                                                                    \
    if (rows > r) {                                                                                \
        c##r##_0 = c##r##_0 + b0;                                                                  \
        if (vecs > 1) c##r##_1 = c##r##_1 + b1;                                                    \
    }
#define NEO__TILE_RELU(r, g, i)                                                                    \
    if (rows > r) {                                                                                \
        c##r##_0 = NEO__MAX_(zero, c##r##_0);                                                      \
        if (vecs > 1) c##r##_1 = NEO__MAX_(zero, c##r##_1);                                        \
    }
#define NEO__TILE_STORE(r, g, i)                                                                   \
    if (rows > r) {                                                                                \
        NEO__STORE(c + r * c_row, c##r##_0);                                                       \
        if (vecs > 1) NEO__STORE(c + r * c_row + NEO__W, c##r##_1);                                \
    }
#define NEO__TILE_GROUP(g) const float *a##g = t->a + (rows > 3 * g ? 3 * g * a_row : 0);
#define NEO__TILE_STEP(g)                                                                          \
    if (rows > 3 * g) a##g += a_k;

/* Packed operands: every other k fetches. */
#define NEO__TILE_ADD(i)                                                                           \
    {                                                                                              \
        NEO__VF b0 = NEO__LOAD(b), b1 = vecs > 1 ? NEO__LOAD(b + NEO__W) : b0;                     \
        if (fetches && (!packed || i % 2 == 0)) NEO__FETCH(line);                                  \
        if (fetches && !packed && vecs > 1 && NEO__W == 16) NEO__FETCH(line + 16);                 \
        line += fetch_step;                                                                        \
        NEO__ROW_LIST(NEO__TILE_FMA)                                                               \
        NEO__GROUP_LIST(NEO__TILE_STEP)                                                            \
        if (keeps) NEO__STORE(keep, b0), NEO__STORE(keep + NEO__W, b1), keep += 2 * NEO__W;        \
        b += b_k;                                                                                  \
        (void)b1;                                                                                  \
    }

/* A panel; rows, vecs and packed are constants where this is inlined: the conditions on them
   vanish. packed: so are a and b, and their addresses take no additions; 2: so is b, and a_k is 1.
   Leaves follow one another here, for a call of each costs as much as a quarter of 16 samples.
   Without `fetches` the lines that tiles fetch ahead are left out; else, if there are none, they
   are of b, which is near. keeps: b is packed while it is multiplied. */
NEO__KERNEL_INLINE void NEO__FN(tile_panel)(const neo__tile *t, const float *b, int64_t j,
                                            const int rows, const int vecs, const int packed,
                                            const int fetches, const int keeps) {
    const int64_t a_row = packed == 1 ? 1 : t->a_row;
    const int64_t a_k = packed == 1 ? rows : packed ? 1 : t->a_k;
    const int64_t b_k = packed ? vecs * NEO__W : t->b_k;
    const int64_t init_row = t->init_row, fetch_step = t->fetch_step;
    const NEO__VF zero = NEO__SET(0.0f);
    float *keep = keeps ? t->keep : NULL;
    NEO__GROUP_LIST(NEO__TILE_GROUP)
    const neo__gemm_piece *piece = NEO__TRAINS ? t->piece : NULL;
    const neo__gemm_piece *end = piece ? piece + t->pieces - 1 : NULL;
    const float *fetch = t->fetch ? t->fetch : b, *line = fetch;
    int64_t lines = t->fetch ? t->fetch_count : t->k;
    for (;; piece++) {
        const float *init = t->init;
        float *c = t->c + j;
        int64_t c_row = t->c_row, left = t->k;
        if (NEO__TRAINS && piece) {
            left = piece->count;
            init = piece->resume ? t->slot[piece->slot] : NULL;
            if (!piece->last) c = t->slot[piece->slot - piece->merges], c_row = init_row;
        }
        NEO__ROW_LIST(NEO__TILE_DECLARE)
        if (init) { NEO__ROW_LIST(NEO__TILE_INIT) }
        while (left > 0) {
            int64_t k = NEO__TRAINS ? NEO__MIN(left, lines) : left;
            left -= k, lines -= k;
            for (; packed && k >= 4; k -= 4) NEO__EACH(i, 4) NEO__TILE_ADD(i)
            for (; k > 0; k--) NEO__TILE_ADD(0)
            if (NEO__TRAINS && lines == 0)
                lines = t->fetch_count, fetch += t->fetch_row, line = fetch;
        }
#if NEO__TRAINS
        for (int32_t i = 0; piece && i < piece->merges; i++) {
            const float *merge = t->slot[piece->slot - 1 - i];
            NEO__ROW_LIST(NEO__TILE_MERGE)
        }
#endif
        if (t->bias) {
            const float *bias = t->bias + j;
            NEO__VF b0 = NEO__LOAD(bias), b1 = vecs > 1 ? NEO__LOAD(bias + NEO__W) : b0;
            NEO__ROW_LIST(NEO__TILE_BIAS)
            (void)b1;
        }
        if (t->relu) { NEO__ROW_LIST(NEO__TILE_RELU) }
        NEO__ROW_LIST(NEO__TILE_STORE)
        if (piece == end) break;
    }
}
NEO__KERNEL_INLINE void NEO__FN(tile)(const neo__tile *t, const int rows, const int vecs,
                                      const int packed, const int fetches) {
    int64_t panel = 0;
    do NEO__FN(tile_panel)(t, t->b + panel * t->b_panel, panel * vecs * NEO__W, rows, vecs,
                           packed, fetches, 0);
    while (++panel < t->panels);
}
#define NEO__TILE_DEFINE(rows)                                                                     \
    NEO__KERNEL void NEO__FN(tile1_##rows)(const neo__tile *t) { NEO__FN(tile)(t, rows, 1, 0, 1); }\
    NEO__KERNEL void NEO__FN(tile2_##rows)(const neo__tile *t) {                                   \
        const int large = NEO__TRAINS && rows >= NEO__ROWS - 2 && rows % 2 == 0;                   \
        const int packed = large && t->a_row == 1 && t->a_k == rows && t->b_k == 2 * NEO__W;       \
        if (large && t->keep) NEO__FN(tile_panel)(t, t->b, 0, rows, 2, 0, 1, 1);                   \
        else if (packed && !t->fetch) NEO__FN(tile)(t, rows, 2, 1, 0);                             \
        else if (packed) NEO__FN(tile)(t, rows, 2, 1, 1);                                          \
        else if (large && t->a_k == 1 && t->b_k == 2 * NEO__W) NEO__FN(tile)(t, rows, 2, 2, 1);    \
        else NEO__FN(tile)(t, rows, 2, 0, 1);                                                      \
    }
NEO__TILE_SIZES(NEO__TILE_DEFINE)
#define NEO__TILE1_NAME(rows) NEO__FN(tile1_##rows),
#define NEO__TILE2_NAME(rows) NEO__FN(tile2_##rows),
static const neo__tile_fn NEO__FN(tile1)[] = {NEO__TILE_SIZES(NEO__TILE1_NAME)};
static const neo__tile_fn NEO__FN(tile2)[] = {NEO__TILE_SIZES(NEO__TILE2_NAME)};
NEO__KERNEL_INLINE void NEO__FN(run_tile)(const neo__tile *t, int64_t rows, int64_t width) {
    const neo__tile_fn *tiles = width > NEO__W ? NEO__FN(tile2) : NEO__FN(tile1);
    tiles[rows / 2](t);
}

/* A row needs more columns to have enough independent sums; plain C would have too much code. */
#undef NEO__ROWS8
#if NEO__PASS == NEO__PASS_SCALAR && defined(NEO_INFERENCE)
#define NEO__ROWS8 NULL
#else
#define NEO__ROWS8 NEO__FN(rows8)
#define NEO__EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
/* fetches, plain: constants where this is inlined. plain: sums start at zero and are the result. */
NEO__KERNEL_INLINE void NEO__FN(row8)(const neo__tile *tile, const float *a, const float *b,
                                      const float *init, int64_t j, float *c, const int fetches,
                                      const int plain) {
    const NEO__VF zero = NEO__SET(0.0f);
#define NEO__ROW8_NAME(v) NEO__VF c##v;
#define NEO__ROW8_START(v) c##v = !plain && tile->init ? NEO__LOAD(init + v * NEO__W) : zero;
#define NEO__ROW8_FMA(v) c##v = NEO__FMA(av, NEO__LOAD(from + v * NEO__W), c##v);
    NEO__EIGHT(NEO__ROW8_NAME)
    NEO__EIGHT(NEO__ROW8_START)
    for (int64_t k = tile->k; k > 0; k--) {
        const float *from = b;
        const NEO__VF av = NEO__SET(*a);
        if (fetches) NEO__EACH(i, NEO__W / 2) NEO__FETCH(b + 32 * tile->b_k + 16 * i);
        NEO__EIGHT(NEO__ROW8_FMA)
        a += tile->a_k, b += tile->b_k;
    }
    for (int32_t i = 0; NEO__TRAINS && !plain && tile->piece && i < tile->piece->merges; i++) {
        const float *left = tile->slot[tile->piece->slot - 1 - i];
#define NEO__ROW8_MERGE(v) c##v = NEO__LOAD(left + v * NEO__W) + c##v;
        NEO__EIGHT(NEO__ROW8_MERGE)
    }
    if (!plain && tile->bias) {
#define NEO__ROW8_BIAS(v) c##v = c##v + NEO__LOAD(tile->bias + j + v * NEO__W);
        NEO__EIGHT(NEO__ROW8_BIAS)
    }
    if (!plain && tile->relu) {
#define NEO__ROW8_RELU(v) c##v = NEO__MAX_(zero, c##v);
        NEO__EIGHT(NEO__ROW8_RELU)
    }
#define NEO__ROW8_STORE(v) NEO__STORE(c + v * NEO__W, c##v);
#define NEO__ROW8_STREAM(v) NEO__STREAM(c + v * NEO__W, c##v);
    if (NEO__TRAINS && !plain && tile->streams) { NEO__EIGHT(NEO__ROW8_STREAM) }
    else { NEO__EIGHT(NEO__ROW8_STORE) }
}
NEO__KERNEL_INLINE void NEO__FN(rows8_of)(const neo__tile *t, const int fetches, const int plain) {
    const int64_t panels = t->panels, panel = t->b_panel, width = 8 * NEO__W;
    const int64_t init_row = t->init ? t->init_row : 0;
    const float *a = t->a, *init = t->init ? t->init : t->c;
    float *c = t->c;
    for (int64_t i = t->rows; i > 0; i--, a += t->a_row, init += init_row, c += t->c_row) {
        const float *b = t->b;
        for (int64_t p = 0, j = 0; p < panels; p++, j += width, b += panel)
            NEO__FN(row8)(t, a, b, init + j, j, c + j, fetches, plain);
    }
}
NEO__KERNEL_INLINE void NEO__FN(rows8_part)(const neo__tile *t, const int plain) {
    if (NEO__TRAINS && t->fetch) NEO__FN(rows8_of)(t, 1, 0);
    else if (NEO__TRAINS && plain) NEO__FN(rows8_of)(t, 0, 1);
    else NEO__FN(rows8_of)(t, 0, 0);
}
NEO__KERNEL void NEO__FN(rows8)(const neo__tile *t) {
    if (NEO__TRAINS && t->piece) { /* of one row */
        neo__tile part = *t;
        for (const neo__gemm_piece *p = t->piece; p < t->piece + t->pieces; p++) {
            part.piece = p, part.k = p->count;
            part.init = p->resume ? t->slot[p->slot] : NULL;
            part.c = p->last ? t->c : t->slot[p->slot - p->merges];
            NEO__FN(rows8_part)(&part, 0);
            part.a += p->count * t->a_k, part.b += p->count * t->b_k;
        }
    } else NEO__FN(rows8_part)(t, !(t->init || t->bias || t->relu || t->streams));
    if (NEO__TRAINS && t->streams) NEO__STREAM_END();
}
#endif

#define NEO__LISTED_EIGHT(X)                                                                       \
    X(0, 0, 0) X(1, 0, 1) X(2, 1, 0) X(3, 1, 1) X(4, 2, 0) X(5, 2, 1) X(6, 3, 0) X(7, 3, 1)
#define NEO__LISTED_NAME(v, panel, odd) NEO__VF c##v = zero;
#define NEO__LISTED_START(v, panel, odd) if (v < vecs) c##v = NEO__LOAD(init + v * NEO__W);
#define NEO__LISTED_FMA(v, panel, odd)                                                             \
    if (v < vecs) c##v = NEO__FMA(av, NEO__LOAD(b##panel + from + odd * NEO__W), c##v);
#define NEO__LISTED_BIAS(v, panel, odd)                                                            \
    if (v < vecs) c##v = c##v + NEO__LOAD(bias + panel * tile->b_panel + odd * NEO__W);
#define NEO__LISTED_RELU(v, panel, odd) if (v < vecs) c##v = NEO__MAX_(zero, c##v);
#define NEO__LISTED_STORE(v, panel, odd) if (v < vecs) NEO__STORE(c + v * NEO__W, c##v);
NEO__KERNEL_INLINE void NEO__FN(listed_panels)(const neo__tile *tile, const int vecs) {
    const float *b0 = tile->b, *b1 = b0 + tile->b_panel, *b2 = b1, *b3 = b1;
    const float *a = tile->a, *init = tile->init, *bias = tile->bias;
    const uint16_t *at = tile->at, *end = tile->ends;
    const NEO__VF zero = NEO__SET(0.0f);
    float *c = tile->c;
    (void)b2, (void)b3;
    if (vecs > 4) b2 = b1 + tile->b_panel, b3 = b2 + tile->b_panel;
    for (int64_t i = tile->rows; i > 0; i--) {
        const uint16_t *p = at, *last = at + *end;
        NEO__LISTED_EIGHT(NEO__LISTED_NAME)
        if (init) {
            NEO__LISTED_EIGHT(NEO__LISTED_START)
            init += tile->init_row, p += end[-1];
        }
        for (; p < last; p++) {
            const int64_t from = *p * 2 * NEO__W;
            const NEO__VF av = NEO__SET(a[*p]);
            NEO__LISTED_EIGHT(NEO__LISTED_FMA)
        }
        if (bias) { NEO__LISTED_EIGHT(NEO__LISTED_BIAS) }
        if (tile->relu) { NEO__LISTED_EIGHT(NEO__LISTED_RELU) }
        NEO__LISTED_EIGHT(NEO__LISTED_STORE)
        a += tile->a_row, at += tile->at_row, end += tile->ends_row, c += tile->c_row;
    }
}
NEO__KERNEL void NEO__FN(listed)(const neo__tile *tile) {
#if NEO__PASS == NEO__PASS_SCALAR
    for (int64_t j = 0; j < 2 * tile->panels; j++) {
        const int64_t at = j / 2 * tile->b_panel + j % 2;
        neo__tile column = *tile;
        column.b += at, column.c += j;
        if (tile->init) column.init += j;
        if (tile->bias) column.bias += at;
        NEO__FN(listed_panels)(&column, 1);
    }
#else
    if (tile->panels == 2) NEO__FN(listed_panels)(tile, 4);
    else NEO__FN(listed_panels)(tile, 8);
#endif
}
NEO__KERNEL void NEO__FN(list)(uint16_t *at, const float *a, int64_t k, int64_t depth,
                               uint16_t *ends) {
    uint16_t *p = at;
    for (int64_t i = 0; i < k; *ends++ = (uint16_t)(p - at)) {
        const int64_t end = NEO__MIN(i + depth, k);
#if NEO__PASS == NEO__PASS_AVX512
        const NEO__VS lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        for (; i + NEO__W <= end; i += NEO__W) {
            const __mmask16 some = NEO__MM(cmp_ps_mask)(NEO__LOAD(a + i), NEO__SET(0.0f), 4);
            const __m512i places = (__m512i)(lane + (int32_t)i);
            _mm256_storeu_si256((__m256i *)(void *)p,
                                (__m256i)NEO__MM(cvtepi32_epi16)(
                                    (__m512i)NEO__MM(maskz_compress_epi32)(some, places)));
            p += __builtin_popcount(some);
        }
#endif
        for (; i < end; i++) {
            *p = (uint16_t)i;
            p += neo__bits_f32(a[i]) << 1 != 0;
        }
    }
}

/* ---- packing ---- */
/* Rows of `width` floats, one behind the other, whose stores may run on into those after them,
   which are written later: stores by a mask are slow on some processors. */
NEO__KERNEL_INLINE int64_t NEO__FN(whole_rows)(int64_t rows, int64_t width) {
    return rows - (NEO__W - 1) / width;
}
NEO__KERNEL void NEO__FN(pack)(float *to, int64_t width, const float *from, int64_t ld,
                               int64_t rows, int64_t cols) {
    if (width == cols && width <= NEO__W) { /* a row of tiles of A */
        const int64_t whole = NEO__FN(whole_rows)(rows, width);
        for (int64_t k = 0; k < rows; k++, from += ld, to += width) {
            __builtin_prefetch(from + 32); /* of the tile after the next */
            const NEO__VF row = width == NEO__W ? NEO__LOAD(from) : NEO__LOADN(from, width);
            if (k < whole) NEO__STORE(to, row);
            else NEO__STOREN(to, row, width);
        }
        return;
    }
    if (width == cols && width == 2 * NEO__W) { /* a full panel of B */
        for (int64_t k = 0; k < rows; k++, from += ld, to += width) {
            NEO__STORE(to, NEO__LOAD(from));
            NEO__STORE(to + NEO__W, NEO__LOAD(from + NEO__W));
        }
        return;
    }
    for (int64_t k = 0; k < rows; k++, from += ld, to += width) {
        int64_t j = 0;
        for (; j + NEO__W <= cols; j += NEO__W) NEO__STORE(to + j, NEO__LOAD(from + j));
        for (; j < width; j += NEO__W) {
            NEO__VF v = j < cols ? NEO__LOADN(from + j, cols - j) : NEO__SET(0.0f);
            if (width - j >= NEO__W) NEO__STORE(to + j, v);
            else NEO__STOREN(to + j, v, width - j);
        }
    }
}

/* transpose4: out[i] holds element k + i of NEO__W rows. */
#if NEO__PASS == NEO__PASS_AVX512
NEO__KERNEL_INLINE __m512 NEO__FN(four_rows)(const float *const *row, int64_t k) {
    __m512 v = NEO__MM(castps128_ps512)(_mm_loadu_ps(row[0] + k));
    v = NEO__MM(insertf32x4)(v, _mm_loadu_ps(row[4] + k), 1);
    v = NEO__MM(insertf32x4)(v, _mm_loadu_ps(row[8] + k), 2);
    return NEO__MM(insertf32x4)(v, _mm_loadu_ps(row[12] + k), 3);
}
#elif NEO__PASS == NEO__PASS_AVX2
NEO__KERNEL_INLINE __m256 NEO__FN(four_rows)(const float *const *row, int64_t k) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[0] + k)),
                                _mm_loadu_ps(row[4] + k), 1);
}
#endif
#if NEO__PASS == NEO__PASS_NEON
#define NEO__LOW(a, b) vzip1q_f32(a, b)
#define NEO__HIGH(a, b) vzip2q_f32(a, b)
#define NEO__LOW2(a, b) ((NEO__VF)vzip1q_f64((float64x2_t)(a), (float64x2_t)(b)))
#define NEO__HIGH2(a, b) ((NEO__VF)vzip2q_f64((float64x2_t)(a), (float64x2_t)(b)))
#elif NEO__PASS != NEO__PASS_SCALAR
#define NEO__PD(a) NEO__MM(castps_pd)(a)
#define NEO__LOW(a, b) NEO__MM(unpacklo_ps)(a, b)
#define NEO__HIGH(a, b) NEO__MM(unpackhi_ps)(a, b)
#define NEO__LOW2(a, b) ((NEO__VF)NEO__MM(unpacklo_pd)(NEO__PD(a), NEO__PD(b)))
#define NEO__HIGH2(a, b) ((NEO__VF)NEO__MM(unpackhi_pd)(NEO__PD(a), NEO__PD(b)))
#endif
#if NEO__PASS != NEO__PASS_SCALAR
NEO__KERNEL_INLINE void NEO__FN(turn4)(NEO__VF r0, NEO__VF r1, NEO__VF r2, NEO__VF r3,
                                       NEO__VF *out) {
    NEO__VF low01 = NEO__LOW(r0, r1), high01 = NEO__HIGH(r0, r1);
    NEO__VF low23 = NEO__LOW(r2, r3), high23 = NEO__HIGH(r2, r3);
    out[0] = NEO__LOW2(low01, low23);
    out[1] = NEO__HIGH2(low01, low23);
    out[2] = NEO__LOW2(high01, high23);
    out[3] = NEO__HIGH2(high01, high23);
}
#endif
NEO__KERNEL_INLINE void NEO__FN(transpose4)(const float *const *row, int64_t k, NEO__VF *out) {
#if NEO__PASS == NEO__PASS_SCALAR
    for (int i = 0; i < 4; i++) out[i] = row[0][k + i];
#else
    __asm__("" : "+r"(row)); /* read the pointers again each time: there are more than registers */
#if NEO__PASS == NEO__PASS_NEON
    NEO__VF r0 = NEO__LOAD(row[0] + k), r1 = NEO__LOAD(row[1] + k);
    NEO__VF r2 = NEO__LOAD(row[2] + k), r3 = NEO__LOAD(row[3] + k);
#else
    NEO__VF r0 = NEO__FN(four_rows)(row, k), r1 = NEO__FN(four_rows)(row + 1, k);
    NEO__VF r2 = NEO__FN(four_rows)(row + 2, k), r3 = NEO__FN(four_rows)(row + 3, k);
#endif
    NEO__FN(turn4)(r0, r1, r2, r3, out);
#endif
}

/* to[k * ld + i] = row[i][k] for i < lanes <= NEO__W, k < rows; all NEO__W rows are read. */
NEO__KERNEL_FAR void NEO__FN(transpose)(float *to, int64_t ld, int64_t lanes,
                                        const float *const *row, int64_t rows) {
    const int64_t whole =
        lanes == NEO__W ? rows : ld == lanes ? NEO__FN(whole_rows)(rows, ld) : 0;
    int64_t k = 0;
    for (; k + 4 <= rows; k += 4, to += 4 * ld) {
        NEO__VF v[4];
        NEO__FN(transpose4)(row, k, v);
        if (k + 4 <= whole) {
            NEO__STORE(to, v[0]);
            NEO__STORE(to + ld, v[1]);
            NEO__STORE(to + 2 * ld, v[2]);
            NEO__STORE(to + 3 * ld, v[3]);
        } else {
            for (int i = 0; i < 4; i++) NEO__STOREN(to + i * ld, v[i], lanes);
        }
    }
    for (; k < rows; k++, to += ld)
        for (int64_t i = 0; i < lanes; i++) to[i] = row[i][k];
}
/* Rows of `from` past the last are read from the last, then cleared. */
NEO__KERNEL void NEO__FN(pack_transposed)(float *to, int64_t width, const float *from, int64_t ld,
                                     int64_t rows, int64_t cols) {
    for (int64_t j = 0; j < cols; j += NEO__W) {
        const float *row[NEO__W];
        for (int64_t i = 0; i < NEO__W; i++) row[i] = from + NEO__MIN(j + i, cols - 1) * ld;
        NEO__FN(transpose)(to + j, width, NEO__MIN(width - j, NEO__W), row, rows);
    }
    if (cols < width)
        for (int64_t k = 0; k < rows; k++)
            for (int64_t j = cols; j < width; j++) to[k * width + j] = 0.0f;
}
#if NEO__TRAINS
/* ---- few samples by weights in place ----
   Lanes go over samples, which are packed; all of them read a row of weights where it lies, while
   the next are fetched. Sums wait in the scratch and are written transposed, some rows at a time,
   as each is a part of every sample's line. */

/* c[j * c_row + i] = init[i * init_row + j], with bias[i] and relu; i < rows, j < b_cols. Up to
   i = b_col there may be written more. */
NEO__KERNEL_INLINE void NEO__FN(turn)(const neo__tile *tile) {
    const NEO__VF zero = NEO__SET(0.0f);
    const float *row[NEO__TURNED_ROWS + NEO__W];
    float *to = tile->c;
    for (int64_t i = 0; i < tile->rows + NEO__W; i++)
        row[i] = tile->init + NEO__MIN(i, tile->rows - 1) * tile->init_row;
    for (int64_t j = 0; j < tile->b_cols; j += 4, to += 4 * tile->c_row)
        for (int64_t i = 0; i < tile->rows; i += NEO__W) {
            const int64_t lanes = NEO__MIN(tile->b_col - i, (int64_t)NEO__W);
            NEO__VF v[4], bias = zero;
            if (tile->bias && lanes == NEO__W) bias = NEO__LOAD(tile->bias + i);
            else if (tile->bias) bias = NEO__LOADN(tile->bias + i, lanes);
            NEO__FN(transpose4)(row + i, j, v);
            NEO__EACH(s, 4) {
                float *at = to + s * tile->c_row + i;
                if (i % 16 == 0) __builtin_prefetch(at + 16 * tile->c_row, 1, 2);
                if (tile->bias) v[s] = v[s] + bias;
                if (tile->relu) v[s] = NEO__MAX_(zero, v[s]);
                if (j + s >= tile->b_cols) continue;
                if (lanes == NEO__W) NEO__STORE(at, v[s]);
                else NEO__STOREN(at, v[s], lanes);
            }
        }
}
NEO__KERNEL void NEO__FN(turned)(const neo__gemm_call *call, int64_t first, int64_t end,
                                 int64_t tiles, float *scratch) {
    const int64_t width = 2 * NEO__W, panels = (call->m + width - 1) / width,
                  samples = panels * width, longest = NEO__TURNED_FLOATS / samples,
                  row = call->b_col, segments = (call->k + longest - 1) / longest;
    NEO__ZERO(neo__tile, t);
    NEO__ZERO(neo__tile, y);
    t.a_row = t.fetch_row = row, t.a_k = 1;
    t.b_k = width;
    t.c_row = t.init_row = y.init_row = samples;
    y.c_row = call->c_row, y.b_cols = call->m;
    y.relu = call->finish.act == NEO_ACT_RELU;
    for (int64_t i = 0; i < segments; i++) {
        const int64_t k0 = call->k * i / segments, k1 = call->k * (i + 1) / segments;
        float *const all = scratch + NEO__TURNED_FLOATS, *sums = all;
        t.k = k1 - k0;
        for (int64_t j = 0; j < samples; j += width)
            NEO__FN(pack_transposed)(scratch + j * t.k, width, call->a + j * call->a_row + k0,
                                     call->a_row, t.k, NEO__MIN(width, call->m - j));
        y.init = sums;
        for (int64_t tile = 1, m0 = first, m1, done = first; m0 < end; tile++, m0 = m1) {
            m1 = first + (end - first) / 2 * tile / tiles * 2;
            const int64_t rows = (m1 - m0 + panels - 1) / panels; /* a panel fetches so many */
            const float *next = call->b + (m1 < end ? k0 + m1 * row : k1 + first * row);
            t.a = call->b + k0 + m0 * row;
            t.fetch_step = rows, t.fetch_count = (t.k + rows - 1) / rows;
            for (int64_t j = 0; j < samples; j += width, next += rows * row) {
                t.b = scratch + j * t.k;
                t.c = sums + j;
                t.init = i > 0 ? t.c : NULL;
                t.fetch = next;
                NEO__FN(run_tile)(&t, m1 - m0, width);
            }
            sums += (m1 - m0) * samples;
            y.rows = m1 - done, y.b_col = end - done;
            if (k1 < call->k || (m1 < end && y.rows + NEO__ROWS <= NEO__TURNED_ROWS)) continue;
            y.bias = call->bias ? call->bias + done : NULL;
            y.c = call->c + done;
            NEO__FN(turn)(&y);
            done = m1;
            if (segments == 1) sums = all;
            y.init = sums;
        }
    }
}
#endif

/* One column of sums in place of a tile: lanes go over the rows of the wide operand, which are
   transposed on their way into the sums. Sixteen rows at a time, whose lines leave room for others
   in the first-level cache though they are far apart. */
enum { NEO__FN(DOT_ROWS) = NEO__W < 8 ? 4 * NEO__W : 16 };
#if NEO__WHOLE_PASS && NEO__PASS != NEO__PASS_AVX512 /* which shuffles at half the rate of AVX2 */
#define NEO__DOTS NEO__FN(dots)
#if NEO__PASS == NEO__PASS_AVX2
#define NEO__DOTS_LOAD(i)                                                                          \
    _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(*low + i)), _mm_loadu_ps(*high + i), 1)
#else
#define NEO__DOTS_LOAD(i) NEO__LOAD(*low + i)
#endif
/* Four k of as many rows as there are lanes, `row` floats apart; half of them from `high` on. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(dots4)(const float **low, const float **high, int64_t row,
                                          const NEO__VF *a, NEO__VF sum) {
#if NEO__PASS == NEO__PASS_SCALAR
    NEO__EACH(i, 4) sum = NEO__FMA(a[i], (*low)[i], sum);
    (void)row;
#else
    NEO__VF v[4];
    NEO__FN(turn4)
    (NEO__DOTS_LOAD(0), NEO__DOTS_LOAD(row), NEO__DOTS_LOAD(2 * row), NEO__DOTS_LOAD(3 * row), v);
    NEO__EACH(i, 4) sum = NEO__FMA(a[i], v[i], sum);
#endif
    *low += 4, *high += 4;
    return sum;
}
#undef NEO__DOTS_LIST
#if NEO__PASS == NEO__PASS_AVX2
#define NEO__DOTS_LIST(X) X(0) X(1)
#else
#define NEO__DOTS_LIST(X) X(0) X(1) X(2) X(3)
#endif
#define NEO__DOTS_BEGIN(g)                                                                         \
    const float *low##g = b + g * NEO__W * row, *high##g = low##g + NEO__W / 2 * row;              \
    NEO__VF s##g = init ? NEO__LOAD(init + g * NEO__W) : NEO__SET(0.0f);
#define NEO__DOTS_STEP(g) s##g = NEO__FN(dots4)(&low##g, &high##g, row, v, s##g);
#define NEO__DOTS_REST(g)                                                                          \
    for (int64_t i = 0; i < NEO__W; i++) lane[i] = b[k + (g * NEO__W + i) * row];                  \
    s##g = NEO__FMA(NEO__SET(a[k]), NEO__LOAD(lane), s##g);
#define NEO__DOTS_STORE(g) NEO__STORE(c + g * NEO__W, s##g);
/* Columns from j on. `fetches` is a constant where this is inlined: pointers fit the registers. */
NEO__KERNEL_INLINE void NEO__FN(dots_of)(const neo__tile *tile, int64_t j, const int fetches) {
    enum { ROWS = NEO__FN(DOT_ROWS) };
    const float *a = tile->a, *init = tile->init ? tile->init + j : NULL;
    const int64_t cols = NEO__MIN(tile->b_cols - j, (int64_t)ROWS), before = ROWS - cols;
    const int64_t count = tile->k, row = tile->b_col;
    const float *b = tile->b + (j - before) * row;
    const size_t bytes = (size_t)cols * sizeof *a;
    float lane[ROWS], *c = before ? lane : tile->c + j;
    if (before && init) {
        memset(lane, 0, sizeof lane);
        init = (const float *)memcpy(lane + before, init, bytes) - before;
    }
    NEO__DOTS_LIST(NEO__DOTS_BEGIN)
    int64_t k = 0;
    for (; k + 4 <= count; k += 4) {
        const NEO__VF v[4] = {NEO__SET(a[k]), NEO__SET(a[k + 1]), NEO__SET(a[k + 2]),
                              NEO__SET(a[k + 3])};
        if (fetches) { /* a quarter of the lines: they are as wide as four steps */
            const float *line = tile->fetch + j * row + (k & ~15) + (k & 15) / 4 * row;
            NEO__EACH(i, ROWS / 4) NEO__FETCH(line + 4 * i * row);
        }
        NEO__DOTS_LIST(NEO__DOTS_STEP)
    }
    for (; k < count; k++) { NEO__DOTS_LIST(NEO__DOTS_REST) }
    NEO__DOTS_LIST(NEO__DOTS_STORE)
    if (before) memcpy(tile->c + j, lane + before, bytes);
}
NEO__KERNEL void NEO__FN(dots)(const neo__tile *tile) {
    for (int64_t j = 0; j < tile->b_cols; j += NEO__FN(DOT_ROWS)) {
#if !defined(NEO_INFERENCE) /* where code is to be small; fetched are operands of 8 MiB */
        if (tile->fetch) NEO__FN(dots_of)(tile, j, 1);
        else
#endif
            NEO__FN(dots_of)(tile, j, 0);
    }
}
#else
#define NEO__DOTS NEO__FN8(dots)
#endif

#if NEO__TRAINS
NEO__KERNEL void NEO__FN(column_sums)(float *to, const float *from, int64_t ld, int64_t rows,
                                 int64_t cols) {
    int64_t j = 0;
    for (; j + 4 * NEO__W <= cols; j += 4 * NEO__W) {
        NEO__VF s0 = NEO__SET(0.0f), s1 = s0, s2 = s0, s3 = s0;
        const float *p = from + j;
        for (int64_t i = 0; i < rows; i++, p += ld) {
            s0 = s0 + NEO__LOAD(p);
            s1 = s1 + NEO__LOAD(p + NEO__W);
            s2 = s2 + NEO__LOAD(p + 2 * NEO__W);
            s3 = s3 + NEO__LOAD(p + 3 * NEO__W);
        }
        NEO__STORE(to + j, s0);
        NEO__STORE(to + j + NEO__W, s1);
        NEO__STORE(to + j + 2 * NEO__W, s2);
        NEO__STORE(to + j + 3 * NEO__W, s3);
    }
    for (; j < cols; j += NEO__W) {
        int64_t n = NEO__MIN(cols - j, NEO__W);
        NEO__VF s = NEO__SET(0.0f);
        for (int64_t i = 0; i < rows; i++) {
            const float *p = from + i * ld + j;
            s = s + (n == NEO__W ? NEO__LOAD(p) : NEO__LOADN(p, n));
        }
        if (n == NEO__W) NEO__STORE(to + j, s);
        else NEO__STOREN(to + j, s, n);
    }
}
#endif
NEO__LEAN_END
/* ---- dot interaction ----
   Forward: T is transposed into a panel P[dim][rows of T]; then both operands of a tile of T T^t
   are read from it, lanes over j. Backward: dT = S T, where S is symmetric and holds dz, laid out
   by bands of columns. Tiles fetch the next sample's rows. Scratch: NEO__INTERACT_FLOATS for T,
   behind them a row of tiles or a band. */
#if defined(NEO_INFERENCE)
NEO__KERNEL_FAR
#else
NEO__KERNEL_INLINE
#endif
void NEO__FN(copy)(float *to, const float *from, int64_t n) {
    for (; n >= NEO__W; n -= NEO__W, to += NEO__W, from += NEO__W) NEO__STORE(to, NEO__LOAD(from));
#define NEO__COPY_PART(size) /* stores by a mask are slow on some processors */                    \
    if (NEO__W > size && (n & size)) memcpy(to, from, size * sizeof *to), to += size, from += size;
    NEO__COPY_PART(8) NEO__COPY_PART(4) NEO__COPY_PART(2) NEO__COPY_PART(1)
}
/* The tile that holds `rows` rows: an odd number takes one more, whose sums nobody reads. */
NEO__KERNEL_INLINE int64_t NEO__FN(tile_rows)(int64_t rows) {
    return rows == 1 ? 1 : rows + (rows & 1);
}
/* Row i of T of a sample. */
NEO__KERNEL_INLINE const float *NEO__FN(interact_row)(const neo__interact_call *job, int64_t sample,
                                               int64_t i) {
    return i == 0 ? job->x + sample * job->x_row
                  : job->e + sample * job->e_row + (i - 1) * job->dim;
}
/* The position of the triangle's row i in z. */
NEO__KERNEL_INLINE int64_t NEO__FN(triangle)(const neo__interact_call *job, int64_t i) {
    return job->dim + (job->diagonal ? i * (i + 1) / 2 : i * (i - 1) / 2);
}
#if NEO__PASS == NEO__PASS_SCALAR && defined(NEO_INFERENCE) /* the same sums in less code */
NEO__KERNEL void NEO__FN(interact_forward)(const neo__interact_call *job, int64_t sample,
                                           float *panel) {
    float *z = job->z + sample * job->z_row, *to = z + job->dim;
    (void)panel;
    NEO__FN(copy)(z, job->x + sample * job->x_row, job->dim);
    for (int64_t i = 0; i <= job->features; i++)
        for (int64_t j = 0; j < i + (job->diagonal != 0); j++) {
            const float *a = NEO__FN(interact_row)(job, sample, i);
            const float *b = NEO__FN(interact_row)(job, sample, j);
            *to = 0.0f;
            for (int64_t d = 0; d < job->dim; d++) *to = NEO__FMA(a[d], b[d], *to);
            to++;
        }
}
#else
/* Let a tile fetch a line for each k, from line *at on, of the next sample's e, then its de. */
NEO__KERNEL_INLINE void NEO__FN(interact_fetch)(const neo__interact_call *job, int64_t sample,
                                                neo__tile *tile, int64_t *at) {
    const int64_t floats = job->features * job->dim, past = *at - floats;
    tile->fetch = sample + 1 >= job->batch     ? NULL
                  : past < 0                   ? job->e + (sample + 1) * job->e_row + *at
                  : past < floats && job->de   ? job->de + (sample + 1) * job->de_row + past
                                               : NULL;
    tile->fetch_step = 16, tile->fetch_row = 16 * 32;
    tile->fetch_count = 32;
    *at += 16 * tile->k;
}

/* Rows [i0, i0 + rows) of the triangle, from g. A row's last vector ends in the next row, which
   is written after it; but where `spare` floats of z do not suffice. */
NEO__KERNEL_INLINE void NEO__FN(interact_rows)(const neo__interact_call *job, float *z,
                                               const float *g, int64_t ld, int64_t i0,
                                               int64_t rows, int64_t spare) {
    for (int64_t i = i0; i < i0 + rows; i++, g += ld) {
        const int64_t at = NEO__FN(triangle)(job, i), n = i + job->diagonal;
        if (at + n + NEO__W > spare) NEO__FN(copy)(z + at, g, n);
        else
            for (int64_t j = 0; j < n; j += NEO__W) NEO__STORE(z + at + j, NEO__LOAD(g + j));
    }
}
#if NEO__PASS == NEO__PASS_AVX512 && NEO__TRAINS
/* ---- of up to 28 rows of T, two tiles: all columns at a time ---- */
/* Whether a sample is one of those, the second tile half full, in whole vectors. */
NEO__KERNEL_INLINE int NEO__FN(interact_is_small)(const neo__interact_call *job) {
    return job->features + 1 >= NEO__ROWS * 3 / 2 && job->features < 2 * NEO__ROWS &&
           job->dim % NEO__W == 0 && job->dim <= NEO__INTERACT_FLOATS / (2 * NEO__W);
}
/* Fetches a line each k, and the next time `step` floats further on. */
#define NEO__AHEAD(at, step) NEO__FETCH(at), at += step
/* A row's last vector ends in the rows behind it, which are written later. */
#define NEO__PAIRS_STORE(r, g, i)                                                                  \
    if (end - at >= vecs * NEO__W) {                                                               \
        NEO__STORE(z + at, c##r##_0);                                                              \
        if (vecs > 1) NEO__STORE(z + at + NEO__W, c##r##_1);                                       \
    } else if (end > at) {                                                                         \
        NEO__STOREN(z + at, c##r##_0, NEO__MIN(end - at, (int64_t)NEO__W));                        \
        if (end - at > NEO__W) NEO__STOREN(z + at + NEO__W, c##r##_1, end - at - NEO__W);          \
    }                                                                                              \
    at += count++;
#define NEO__PAIRS_GROUP(g) const float *a##g = panel + i0 + 3 * g;
/* Rows [i0, i0 + NEO__ROWS) of the triangle, by the panel of all. */
NEO__KERNEL_INLINE void NEO__FN(interact_pairs)(const neo__interact_call *job, const float *panel,
                                                float *z, const float **ahead, int64_t i0,
                                                const int vecs) {
    enum { rows = NEO__ROWS, a_row = 1, a_k = 2 * NEO__W };
    const int64_t end = NEO__FN(triangle)(job, job->features + 1),
                  step = *ahead != panel ? (job->features + 1) / 2 : 0;
    int64_t at = NEO__FN(triangle)(job, i0), count = i0 + job->diagonal;
    const float *b = panel, *fetch = *ahead;
    const NEO__VF zero = NEO__SET(0.0f);
    NEO__GROUP_LIST(NEO__PAIRS_GROUP)
    NEO__ROW_LIST(NEO__TILE_DECLARE)
    for (int64_t k = job->dim; k > 0; k--) {
        NEO__VF b0 = NEO__LOAD(b), b1 = vecs > 1 ? NEO__LOAD(b + NEO__W) : b0;
        NEO__AHEAD(fetch, step);
        NEO__ROW_LIST(NEO__TILE_FMA)
        NEO__GROUP_LIST(NEO__TILE_STEP)
        b += a_k, (void)b1;
    }
    NEO__ROW_LIST(NEO__PAIRS_STORE)
    *ahead = fetch;
}
NEO__KERNEL void NEO__FN(interact_small)(const neo__interact_call *job, int64_t sample,
                                         float *panel) {
    const float *row[2 * NEO__W], *ahead = panel;
    float *z = job->z + sample * job->z_row;
    for (int64_t i = 0; i < 2 * NEO__W; i++)
        row[i] = NEO__FN(interact_row)(job, sample, NEO__MIN(i, job->features));
    for (int64_t j = 0; j < 2 * NEO__W; j += NEO__W)
        NEO__FN(transpose)(panel + j, 2 * NEO__W, NEO__W, row + j, job->dim);
    NEO__FN(copy)(z, row[0], job->dim);
    if (sample + 1 < job->batch) ahead = row[1] + job->e_row;
    NEO__FN(interact_pairs)(job, panel, z, &ahead, 0, 1);
    NEO__FN(interact_pairs)(job, panel, z, &ahead, NEO__ROWS, 2);
}

/* s[k * NEO__W + r] = S(i0 + k, i0 + r) of NEO__ROWS rows and columns; 0 past the last. */
NEO__KERNEL_INLINE void NEO__FN(interact_block)(const neo__interact_call *job, const float *dz,
                                                int64_t i0, float *s) {
    const int64_t n = job->features + 1 - i0, rows = NEO__MIN(n, (int64_t)NEO__ROWS);
    const float *row[NEO__W];
    for (int64_t i = 0; i < NEO__W; i++)
        row[i] = dz + NEO__FN(triangle)(job, i0 + NEO__MIN(i, n - 1)) + i0;
    NEO__FN(transpose)(s, NEO__W, NEO__W, row, NEO__MIN(n - 1, (int64_t)NEO__W));
    for (int64_t k = 0; k < rows; k++, s += NEO__W) {
        const NEO__VM below = NEO__LANES(k), above = (NEO__VM)(NEO__LANES(rows) & (0xFFFEu << k));
        const NEO__VI right = NEO__AS_I(NEO__LOADP(s, above));
        NEO__STORE(s, NEO__AS_F(right | NEO__AS_I(NEO__LOADP(row[k], below))));
        if (job->diagonal) s[k] = 2.0f * row[k][k];
    }
}
#define NEO__BACK_FMA(r, g, i)                                                                     \
    {                                                                                              \
        NEO__VF av = NEO__SET(a[r * a_row]);                                                       \
        c##r##_0 = NEO__FMA(av, b0, c##r##_0);                                                     \
        if (vecs > 1) c##r##_1 = NEO__FMA(av, b1, c##r##_1);                                       \
    }
#define NEO__BACK_STEP                                                                             \
    {                                                                                              \
        NEO__VF b0 = NEO__LOAD(b), b1 = vecs > 1 ? NEO__LOAD(b + NEO__W) : b0;                     \
        NEO__AHEAD(fetch, step);                                                                   \
        NEO__AHEAD(fetch_de, step);                                                                \
        NEO__ROW_LIST(NEO__BACK_FMA)                                                               \
        b = k > 0 ? b + job->dim : e, (void)b1;                                                    \
    }
#define NEO__BACK_STORE(r, g, i)                                                                   \
    if (i0 + r < n) {                                                                              \
        NEO__STORE(to, c##r##_0);                                                                  \
        if (vecs > 1) NEO__STORE(to + NEO__W, c##r##_1);                                           \
        to = i0 + r > 0 ? to + job->dim : de;                                                      \
    }
/* Columns from j on of rows [i0, i0 + NEO__ROWS) of dT. Their factors: the block of the same rows;
   of those before left[r * NEO__W + k], of those after dz itself. ahead: of the next sample, so
   many floats on. */
NEO__KERNEL_INLINE void NEO__FN(interact_back)(const neo__interact_call *job, int64_t sample,
                                               int64_t j, const float *block, const float *left,
                                               int64_t *ahead, const int64_t i0, const int vecs) {
    const int64_t n = job->features + 1, next = sample + (sample + 1 < job->batch);
    const int64_t steps = (job->dim + 2 * NEO__W - 1) / (2 * NEO__W) * 2 * n;
    const int64_t step = next > sample ? (job->features * job->dim + steps - 1) / steps : 0;
    const float *dz = job->dz + sample * job->dz_row, *b = job->x + sample * job->x_row + j,
                *e = job->e + sample * job->e_row + j, *fetch = job->e + next * job->e_row + *ahead,
                *fetch_de = job->de + next * job->de_row + *ahead;
    float *de = job->de + sample * job->de_row + j,
          *to = i0 > 0 ? de + (i0 - 1) * job->dim : job->dx + sample * job->dx_row + j;
    const NEO__VF zero = NEO__SET(0.0f);
    int64_t k = 0, a_row = NEO__W;
    NEO__ROW_LIST(NEO__TILE_DECLARE)
    if (i0 == 0) {
        c0_0 = NEO__LOAD(dz + j);
        if (vecs > 1) c0_1 = NEO__LOAD(dz + j + NEO__W);
    }
    const float *a = left;
    for (; k < i0; k++, a++) NEO__BACK_STEP
    a = block, a_row = 1;
    for (; k < NEO__MIN(n, i0 + NEO__ROWS); k++, a += NEO__W) NEO__BACK_STEP
    a = dz + NEO__FN(triangle)(job, k);
    for (; k < n; a += k + job->diagonal, k++) NEO__BACK_STEP
    NEO__ROW_LIST(NEO__BACK_STORE)
    *ahead += n * step;
}
NEO__KERNEL void NEO__FN(interact_back_small)(const neo__interact_call *job, int64_t sample,
                                              float *scratch) {
    enum { BLOCK = NEO__W * NEO__W };
    const float *dz = job->dz + sample * job->dz_row;
    float *left = scratch + 2 * BLOCK;
    int64_t ahead = 0;
    for (int64_t i0 = 0, block = 0; block < 2; block++, i0 += NEO__ROWS)
        NEO__FN(interact_block)(job, dz, i0, scratch + block * BLOCK);
    for (int64_t r = 0; r < NEO__ROWS; r++) {
        const int64_t i = NEO__MIN(NEO__ROWS + r, job->features);
        NEO__STORE(left + r * NEO__W,
                   NEO__LOADN(dz + NEO__FN(triangle)(job, i), (int64_t)NEO__ROWS));
    }
    for (int64_t i = 0; sample + 1 < job->batch && i < NEO__FN(triangle)(job, job->features + 1);
         i += NEO__W)
        NEO__FETCH(dz + job->dz_row + i);
    for (int64_t j = 0; j < job->dim; j += 2 * NEO__W) {
        if (job->dim - j > NEO__W) {
            NEO__FN(interact_back)(job, sample, j, scratch, left, &ahead, 0, 2);
            NEO__FN(interact_back)(job, sample, j, scratch + BLOCK, left, &ahead, NEO__ROWS, 2);
        } else {
            NEO__FN(interact_back)(job, sample, j, scratch, left, &ahead, 0, 1);
            NEO__FN(interact_back)(job, sample, j, scratch + BLOCK, left, &ahead, NEO__ROWS, 1);
        }
    }
}
#endif
NEO__KERNEL void NEO__FN(interact_forward)(const neo__interact_call *job, int64_t sample,
                                           float *panel) {
#if NEO__PASS == NEO__PASS_AVX512 && NEO__TRAINS
    if (NEO__FN(interact_is_small)(job)) {
        NEO__FN(interact_small)(job, sample, panel);
        return;
    }
#endif
    const int64_t n = job->features + 1, dim = job->dim, diagonal = job->diagonal != 0;
    const int64_t ld = (n + NEO__W - 1) / NEO__W * NEO__W;
    const int64_t chunk = NEO__MAX(1, NEO__INTERACT_FLOATS / ld); /* of dim: one, but for huge T */
    const int64_t spare = chunk < dim ? 0 : NEO__FN(triangle)(job, n);
    float *z = job->z + sample * job->z_row, *sum = panel + NEO__INTERACT_FLOATS;
    int64_t fetched = 0;
    NEO__ZERO(neo__tile, tile);
    NEO__FN(copy)(z, job->x + sample * job->x_row, dim);
    for (int64_t d = 0; d < dim || d == 0; d += chunk) {
        for (int64_t j = 0; j < n; j += NEO__W) {
            const float *row[NEO__W];
            for (int64_t i = 0; i < NEO__W; i++)
                row[i] = NEO__FN(interact_row)(job, sample, NEO__MIN(j + i, n - 1)) + d;
            NEO__FN(transpose)(panel + j, ld, NEO__W, row, NEO__MIN(chunk, dim - d));
        }
        tile.k = NEO__MIN(chunk, dim - d);
        tile.a_row = 1, tile.a_k = ld;
        tile.b_k = ld;
        tile.c_row = ld;
        for (int64_t i0 = 1 - diagonal, rows; i0 < n; i0 += rows) {
            rows = (n - i0 - 1) % NEO__ROWS + 1; /* those over to the first, where they are short */
            const int64_t end = i0 + rows - 1 + diagonal;
            if (d > 0) {
                memset(sum, 0, (size_t)((rows + 1) * ld) * sizeof *sum);
                for (int64_t i = 0; i < rows; i++)
                    NEO__FN(copy)(sum + i * ld, z + NEO__FN(triangle)(job, i0 + i),
                                  i0 + i + diagonal);
            }
            for (int64_t j0 = 0, width; j0 < end; j0 += width) {
                width = end - j0 > NEO__W && ld - j0 > NEO__W ? 2 * NEO__W : NEO__W;
                tile.a = panel + i0;
                tile.b = panel + j0;
                tile.c = sum + j0;
                tile.init = d > 0 ? tile.c : NULL, tile.init_row = ld;
                NEO__FN(interact_fetch)(job, sample, &tile, &fetched);
                NEO__FN(run_tile)(&tile, NEO__FN(tile_rows)(rows), width);
            }
            NEO__FN(interact_rows)(job, z, sum, ld, i0, rows, spare);
        }
    }
}
#endif

#if NEO__TRAINS
/* s[k * ld + i] = S(k, i0 + i) for all k, of a band of `cols` columns: S's rows are read as columns
   above its diagonal, and copied below it. */
NEO__KERNEL_INLINE void NEO__FN(interact_band)(const neo__interact_call *job, const float *dz,
                                               int64_t i0, int64_t cols, int64_t ld, float *s) {
    const int64_t n = job->features + 1;
    for (int64_t i = i0; i < i0 + cols; i += NEO__W) {
        const float *row[NEO__W];
        for (int64_t l = 0; l < NEO__W; l++)
            row[l] = dz + NEO__FN(triangle)(job, NEO__MIN(i + l, n - 1));
        NEO__FN(transpose)(s + i - i0, ld, NEO__W, row, NEO__MIN(i + NEO__W, n - 1));
    }
    for (int64_t k = i0; k < n; k++) {
        const float *row = dz + NEO__FN(triangle)(job, k);
        NEO__FN(copy)(s + k * ld, row + i0, NEO__MIN(k - i0, cols));
        if (k < i0 + cols) s[k * ld + k - i0] = job->diagonal ? 2.0f * row[k] : 0.0f;
    }
    for (int64_t i = n - i0; i < ld; i++) s[(n - 1) * ld + i] = 0.0f; /* pads a tile */
}

/* Columns [d, d + cols) of rows [i0, i0 + rows) of dT; t is T's columns there, one panel after the
   other, s the rows' factors. */
NEO__KERNEL_INLINE void NEO__FN(interact_columns)(const neo__interact_call *job, int64_t sample,
                                                  int64_t d, int64_t cols, const float *t,
                                                  int64_t i0, int64_t rows, neo__tile *tile,
                                                  int64_t *fetched) {
    const float *dz = job->dz + sample * job->dz_row;
    const int64_t tile_rows = NEO__FN(tile_rows)(rows);
    float sum[NEO__TILE_MAX_FLOATS];
    for (int64_t j = 0, width; j < cols; j += width) {
        width = cols - j > NEO__W ? 2 * NEO__W : NEO__W;
        const int64_t part = NEO__MIN(width, cols - j);
        const int in_place = i0 > 0 && part == width && rows == tile_rows;
        float *de = job->de ? job->de + sample * job->de_row + d + j : NULL;
        tile->b = t, tile->b_k = width;
        tile->c = in_place ? de + (i0 - 1) * job->dim : sum;
        tile->c_row = in_place ? job->dim : width;
        tile->init = i0 == 0 ? sum : NULL, tile->init_row = width;
        if (i0 == 0) {
            memset(sum, 0, (size_t)(tile_rows * width) * sizeof *sum);
            NEO__FN(copy)(sum, dz + d + j, part);
        }
        NEO__FN(interact_fetch)(job, sample, tile, fetched);
        NEO__FN(run_tile)(tile, tile_rows, width);
        t += (job->features + 1) * width;
        if (in_place) continue;
        for (int64_t i = 0; i < rows; i++)
            NEO__FN(copy)(i0 + i == 0 ? job->dx + sample * job->dx_row + d + j
                                      : de + (i0 + i - 1) * job->dim, sum + i * width, part);
    }
}
NEO__KERNEL void NEO__FN(interact_backward)(const neo__interact_call *job, int64_t sample,
                                            float *scratch) {
#if NEO__PASS == NEO__PASS_AVX512
    if (NEO__FN(interact_is_small)(job) && job->dx && job->de) {
        NEO__FN(interact_back_small)(job, sample, scratch);
        return;
    }
#endif
    const int64_t n = job->features + 1, end = job->de ? n : 1;
    const int64_t most = NEO__INTERACT_FLOATS / n / (2 * NEO__W) * (2 * NEO__W);
    const int64_t band = NEO__MIN((n + NEO__W) / NEO__W * NEO__W,
                                  NEO__INTERACT_FLOATS / 4 / n / NEO__W * NEO__W);
    float *s = scratch + NEO__INTERACT_FLOATS;
    int64_t fetched = 0;
    NEO__ZERO(neo__tile, tile);
    tile.k = n;
    tile.a_row = 1, tile.a_k = band;
    for (int64_t d = 0; d < job->dim; d += most) {
        const int64_t cols = NEO__MIN(most, job->dim - d);
        float *panel = scratch;
        for (int64_t j = 0, width; j < cols; j += width) {
            width = cols - j > NEO__W ? 2 * NEO__W : NEO__W;
            const int64_t part = NEO__MIN(width, cols - j);
            NEO__FN(pack)(panel, width, job->x + sample * job->x_row + d + j, 0, 1, part);
            NEO__FN(pack)(panel + width, width, job->e + sample * job->e_row + d + j, job->dim,
                          n - 1, part);
            panel += n * width;
        }
        for (int64_t b0 = 0; b0 < end; b0 += band) {
            const int64_t stop = NEO__MIN(b0 + band, end);
            NEO__FN(interact_band)(job, job->dz + sample * job->dz_row, b0,
                                   NEO__MIN(band, n - b0), band, s);
            for (int64_t i0 = NEO__MAX(b0, job->dx ? 0 : 1), rows; i0 < stop; i0 += rows) {
                /* the odd row goes to the first tile, which passes through `sum` anyhow */
                rows = stop - i0 > NEO__ROWS ? NEO__ROWS - ((stop - i0) & 1) : stop - i0;
                tile.a = s + i0 - b0;
                NEO__FN(interact_columns)(job, sample, d, cols, scratch, i0, rows, &tile, &fetched);
            }
        }
    }
}
#endif

#if NEO__PASS == NEO__PASS_AVX512 && defined(NEO__X86_BF16)
/* ---- bf16 products; see >>impl-bf16 ----
   Both instructions work on pairs of numbers. Instructions by name: compilers take intrinsics only
   in functions that target them. */
#define NEO__DOT(c, x, y) __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(x), "v"(y))
/* The 16-bit numbers at p that m has a bit for, others 0; p is of the type of all. */
#define NEO__LOAD16(x, m, p) __asm__("vmovdqu16 %1, %0%{%2%}%{z%}" : "=v"(x) : "m"(*(p)), "Yk"(m))
#define NEO__SHUFFLE8(x, to) __asm__("vpshufb %1, %0, %0" : "+v"(x) : "v"(to))

/* Pairs (low, high) of a block's k: vdpbf16ps adds first the high one's product, then the low
   one's, to one sum: (2, 0), (3, 1), (6, 4), (7, 5) ... are chains of even and of odd k. TDPBF16PS
   adds the low ones in one chain, the high ones in another: (0, 1), (2, 3) ... */
NEO__KERNEL_INLINE int64_t NEO__FN(bf16_k)(int64_t w, int high, int chains) {
    return chains ? (w / 2 * 4) + w % 2 + 2 - 2 * high : 2 * w + high;
}
NEO__KERNEL void NEO__FN(bf16_pack)(float *to, int64_t width, const uint16_t *from, int64_t ld,
                                    int64_t count, int64_t cols, int chains) {
    const int64_t words = (count + 31) / 32 * 16;
    for (int64_t w = 0; w < words; w++, to += width) {
        const int64_t k0 = NEO__FN(bf16_k)(w, 0, chains), k1 = NEO__FN(bf16_k)(w, 1, chains);
        const uint16_t *low = from + (k0 < count ? k0 * ld : 0),
                       *high = from + (k1 < count ? k1 * ld : 0);
        for (int64_t j = 0; j < width; j += 16) {
            const __mmask16 m = cols - j >= 16 ? (__mmask16)0xFFFF
                                : cols > j     ? NEO__LANES(cols - j)
                                               : (__mmask16)0;
            const __mmask16 m0 = k0 < count ? m : (__mmask16)0, m1 = k1 < count ? m : (__mmask16)0;
            __m256i x, y;
            NEO__LOAD16(x, m0, (const uint16_t(*)[16])(low + j));
            NEO__LOAD16(y, m1, (const uint16_t(*)[16])(high + j));
            const NEO__VI low_x = (NEO__VI)NEO__MM(cvtepu16_epi32)(x);
            NEO__VI pair = low_x | ((NEO__VI)NEO__MM(cvtepu16_epi32)(y) << 16);
            NEO__STORE(to + j, NEO__AS_F(pair));
        }
    }
}
NEO__KERNEL void NEO__FN(bf16_pack_row)(float *to, const uint16_t *from, int64_t count,
                                        int chains) {
    static const uint32_t four[4] = {0x01000504, 0x03020706, 0x09080D0C, 0x0B0A0F0E};
    const NEO__VI order = {four[0], four[1], four[2], four[3], four[0], four[1], four[2], four[3],
                           four[0], four[1], four[2], four[3], four[0], four[1], four[2], four[3]};
    for (int64_t k = 0; k < count; k += 32, to += 16) {
        const int64_t left = count - k;
        const uint32_t m = left >= 32 ? 0xFFFFFFFFu : ((uint32_t)1 << left) - 1;
        __m512i x;
        NEO__LOAD16(x, m, (const uint16_t(*)[32])(from + k));
        if (chains) NEO__SHUFFLE8(x, order);
        NEO__STORE(to, NEO__AS_F(x));
    }
}

/* 6 x 32 sums of even k and 6 x 32 of odd k in registers. */
#define NEO__DOT_START(r, g, i)                                                                    \
    NEO__VF e##r##0 = zero, e##r##1 = zero, o##r##0 = zero, o##r##1 = zero;
#define NEO__DOT_STEP(r, g, i)                                                                     \
    even = NEO__SET(a##g[i * a_row]), odd = NEO__SET(a##g[i * a_row + a_word]);                    \
    NEO__DOT(e##r##0, even, b0);                                                                   \
    NEO__DOT(e##r##1, even, b1);                                                                   \
    NEO__DOT(o##r##0, odd, b2);                                                                    \
    NEO__DOT(o##r##1, odd, b3);
#define NEO__DOT_STORE(r, g, i)                                                                    \
    NEO__STORE(c + 32 * r, NEO__LOAD(c + 32 * r) + (e##r##0 + o##r##0));                           \
    NEO__STORE(c + 32 * r + 16, NEO__LOAD(c + 32 * r + 16) + (e##r##1 + o##r##1));
/* Without this pass gcc keeps the sums in memory: a fifth of the speed. */
#if defined(NEO__COLD) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("rerun-cse-after-loop")
#endif
NEO__KERNEL void NEO__FN(bf16_tile)(const neo__bf16_tile *tile) {
    const int64_t a_row = tile->a_row, a_word = tile->a_word;
    const float *a0 = tile->a, *a1 = a0 + 3 * a_row, *b = tile->b;
    float *c = tile->c;
    const NEO__VF zero = NEO__SET(0.0f);
    for (int64_t blocks = tile->blocks; blocks > 0; blocks--) {
        NEO__ROW_LIST_6(NEO__DOT_START)
        for (int i = 0; i < 8; i++, b += 64) {
            NEO__VF b0 = NEO__LOAD(b), b1 = NEO__LOAD(b + 16), b2 = NEO__LOAD(b + 32),
                    b3 = NEO__LOAD(b + 48);
            NEO__VF even, odd;
            NEO__ROW_LIST_6(NEO__DOT_STEP)
            a0 += 2 * a_word, a1 += 2 * a_word;
        }
        NEO__ROW_LIST_6(NEO__DOT_STORE)
    }
}
#if defined(NEO__COLD) && !defined(__clang__)
#pragma GCC pop_options
#endif
static const neo__bf16_kernels NEO__FN(bf16_kernels) = {
    6, 32, 1, NEO__FN(bf16_pack_row), NEO__FN(bf16_pack), NULL, NEO__FN(bf16_tile), NULL,
};

/* ---- AMX: tiles 0 to 3 are C, 32 x 32; 4 and 5 of A, 6 and 7 of B, each of 16 rows of 64 bytes.
   What is read once goes by loads that leave the first-level cache to A's rows. ---- */
NEO__KERNEL void neo__bf16_begin_amx(void) {
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = 16;
    __asm__ __volatile__("ldtilecfg %0" : : "m"(config) : "memory");
}
NEO__KERNEL void neo__bf16_end_amx(void) { __asm__ __volatile__("tilerelease" : : : "memory"); }
NEO__KERNEL void neo__bf16_tile_amx(const neo__bf16_tile *tile) {
    const int64_t a_bytes = tile->a_row * (int64_t)sizeof(float),
                  line = 32 * (int64_t)sizeof(float);
    const float *a = tile->a, *b = tile->b;
    float *c = tile->c;
    if (tile->first)
        __asm__ __volatile__("tilezero %%tmm0\n\t"
                             "tilezero %%tmm1\n\t"
                             "tilezero %%tmm2\n\t"
                             "tilezero %%tmm3" : : : "memory");
    else
        __asm__ __volatile__("tileloaddt1 (%0,%4,1), %%tmm0\n\t"
                             "tileloaddt1 (%1,%4,1), %%tmm1\n\t"
                             "tileloaddt1 (%2,%4,1), %%tmm2\n\t"
                             "tileloaddt1 (%3,%4,1), %%tmm3"
                             :
                             : "r"(c), "r"(c + 16), "r"(c + 512), "r"(c + 528), "r"(line)
                             : "memory");
    for (int64_t blocks = tile->blocks; blocks > 0; blocks--, a += 16, b += 512)
        __asm__ __volatile__("tileloaddt1 (%2,%5,1), %%tmm6\n\t"
                             "tileloadd (%0,%4,1), %%tmm4\n\t"
                             "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t" /* c += a b, as b, a, c */
                             "tileloaddt1 (%3,%5,1), %%tmm7\n\t"
                             "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                             "tileloadd (%1,%4,1), %%tmm5\n\t"
                             "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
                             "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
                             :
                             : "r"(a), "r"(a + 16 * tile->a_row), "r"(b), "r"(b + 16), "r"(a_bytes),
                               "r"(line)
                             : "memory");
    __asm__ __volatile__("tilestored %%tmm0, (%0,%4,1)\n\t"
                         "tilestored %%tmm1, (%1,%4,1)\n\t"
                         "tilestored %%tmm2, (%2,%4,1)\n\t"
                         "tilestored %%tmm3, (%3,%4,1)"
                         : : "r"(c), "r"(c + 16), "r"(c + 512), "r"(c + 528), "r"(line) : "memory");
}
static const neo__bf16_kernels neo__bf16_kernels_amx = {
    32,
    32,
    0,
    NEO__FN(bf16_pack_row),
    NEO__FN(bf16_pack),
    neo__bf16_begin_amx,
    neo__bf16_tile_amx,
    neo__bf16_end_amx,
};
#endif

static const neo__gemm_kernels NEO__FN(gemm_kernels) = {
    NEO__ROWS,
    NEO__W,
    NEO__FN(tile1),
    NEO__FN(tile2),
    NEO__ROWS8,
    NEO__FN(listed),
    NEO__FN(list),
    NEO__DOTS,
    NEO__FN(DOT_ROWS),
    NEO__FN(pack),
    NEO__FN(pack_transposed),
    NEO__TRAIN(NEO__FN(turned)),
    NEO__TRAIN(NEO__FN(column_sums)),
    NEO__FN(interact_forward),
    NEO__TRAIN(NEO__FN(interact_backward)),
};
#endif

#if NEO__WHOLE_PASS
/* ---- >>kernels-bags ----

   Sums run down the rows in registers: a chunk of 8, 4, 2 or 1 vectors of columns, or a rest
   narrower than a vector, at a time. Which chunk a column is in changes nothing: every column is a
   chain of its own. */

/* Vectors of a row of which `left` columns remain: a whole one, or its first part. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(load_left)(const float *p, int64_t left) {
    return left >= NEO__W ? NEO__LOAD(p) : NEO__LOADN(p, left);
}
NEO__KERNEL_INLINE void NEO__FN(store_left)(float *p, NEO__VF v, int64_t left) {
    if (left >= NEO__W) NEO__STORE(p, v);
    else NEO__STOREN(p, v, left);
}

/* The same in a loop over the columns c of n. */
#define NEO__LDC(p) NEO__FN(load_left)((p) + c, n - c)
#define NEO__STC(p, v) NEO__FN(store_left)((p) + c, v, n - c)

/* ---- narrow rows; see neo_table_desc for the formulas ---- */
#if NEO__PASS == NEO__PASS_SCALAR || NEO__PASS == NEO__PASS_WARP
#define NEO__LOAD_B(p) ((uint32_t)((const int8_t *)(p))[NEO__LANE])
#define NEO__STORE_B(p, v) (((int8_t *)(p))[NEO__LANE] = (int8_t)(v))
#elif NEO__PASS == NEO__PASS_AVX512
#define NEO__LOAD_B(p)                                                                             \
    ((NEO__VI)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define NEO__STORE_B(p, v)                                                                         \
    _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8((__m512i)(v)))
#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__LOAD_B(p)                                                                             \
    ((NEO__VI)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define NEO__STORE_B(p, v) NEO__FN(store_b)(p, (__m256i)(v))
NEO__KERNEL_INLINE void NEO__FN(store_b)(void *p, __m256i v) {
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(h, h));
}
#else
#define NEO__LOAD_B(p) NEO__FN(load_b)(p)
#define NEO__STORE_B(p, v) NEO__FN(store_b)(p, v)
NEO__KERNEL_INLINE NEO__VI NEO__FN(load_b)(const void *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return (NEO__VI)vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint64_t)four))));
}
NEO__KERNEL_INLINE void NEO__FN(store_b)(void *p, NEO__VI v) {
    int16x4_t h = vmovn_s32((NEO__VS)v);
    uint64_t b = vget_lane_u64(vreinterpret_u64_s8(vmovn_s16(vcombine_s16(h, h))), 0);
    uint32_t four = (uint32_t)b;
    memcpy(p, &four, sizeof four);
}
#endif
/* A vector of elements as f32; `left` are there. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(row_load)(neo_dtype dtype, const char *p, NEO__VF scale,
                                             NEO__VF bias) {
    if (dtype == NEO_F16) return NEO__LOAD_F16(p);
    if (dtype == NEO_BF16) return NEO__AS_F(NEO__LOAD_H(p) << 16);
    return NEO__FMA(NEO__TO_F(NEO__LOAD_B(p)), scale, bias);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(row_load_left)(neo_dtype dtype, const char *p, int64_t left,
                                           NEO__VF scale, NEO__VF bias) {
#if NEO__PASS == NEO__PASS_WARP
    return NEO__LANE < left ? NEO__FN(row_load)(dtype, p, scale, bias) : NEO__SET(0.0f);
#else
    int16_t few[16];
    if (NEO__W == 1 || left >= NEO__W) return NEO__FN(row_load)(dtype, p, scale, bias);
    memset(few, 0, sizeof few);
    memcpy(few, p, (size_t)(left & 15) * (dtype == NEO_I8 ? 1 : 2)); /* left < NEO__W <= 16 */
    return NEO__FN(row_load)(dtype, (const char *)few, scale, bias);
#endif
}
NEO__KERNEL_FAR void NEO__FN(rows_decode)(const neo__bag_rows *t, int64_t row, int64_t col,
                                               int64_t n, float *to) {
    int64_t size = t->dtype == NEO_I8 ? 1 : 2;
    const char *p = t->data + row * t->row_bytes + col * size;
    NEO__VF scale = NEO__SET(t->scale ? t->scale[2 * row] : 0.0f);
    NEO__VF bias = NEO__SET(t->scale ? t->scale[2 * row + 1] : 0.0f);
    for (int64_t c = 0; c < n; c += NEO__W)
        NEO__STC(to, NEO__FN(row_load_left)(t->dtype, p + c * size, n - c, scale, bias));
}
#if NEO__TRAINS
/* The largest integer up to x, |x| < 2^22. */
NEO__KERNEL_INLINE NEO__VI NEO__FN(floor_i)(NEO__VF x) {
    NEO__VI n = NEO__TO_I(x) - 1u;
    return NEO__COUNT_IF(NEO__LE(NEO__TO_F(n + 1u), x), n);
}
/* neo__narrow_encode for bf16 and f16. f16 keeps 11 of 24 bits, of a denormal fewer; what is below
   them, as a fraction of 32 bits, meets the random ones. */
NEO__KERNEL_INLINE NEO__VI NEO__FN(bf16_round)(NEO__VF x, NEO__VI r) {
    NEO__VI u = NEO__AS_I(x), a = u & 0x7FFFFFFFu;
    NEO__VI code = (u + (r >> 16)) >> 16;
    NEO__VI nan = ((u ^ a) >> 16) | 0x7FC0u;
    return NEO__SELECTI(NEO__GTI(a, NEO__SETI(0x7F800000)), nan, code);
}
NEO__KERNEL_INLINE NEO__VI NEO__FN(f16_round)(NEO__VF x, NEO__VI r) {
    NEO__VI u = NEO__AS_I(x), a = u & 0x7FFFFFFFu, exponent = (a >> 23) - 102u;
    NEO__VI left = NEO__MINI(exponent, NEO__SETI(11)), right = 0u - left;
    NEO__VI m = a << 8 | 0x80000000u; /* its leading bit is at the top */
    NEO__VI code = NEO__SRLV(m, right + 32u) + ((exponent - left) << 10);
    NEO__VI rest = NEO__SLLV(m, left) | NEO__SRLV(m, right);
    /* rest + r >= 2^32: rest > ~r, unsigned */
    code = NEO__COUNT_IF(NEO__GTI(rest ^ 0x80000000u, r ^ 0x7FFFFFFFu), code);
    code = NEO__MINI(code, NEO__SETI(0x7C00));
    code = NEO__SELECTI(NEO__GTI(a, NEO__SETI(0x7F800000)), NEO__SETI(0x7E00), code);
    return code | ((u ^ a) >> 16);
}
/* The random words of rows, as the bits of floats: row by row whole blocks, filled up to 16 of
   them. The blocks' numbers are written first, where no word comes before they are read. */
NEO__KERNEL_FAR void NEO__FN(rows_words)(const neo__bag_rows *rows, const int64_t *row,
                                              int64_t count, const neo__random_key *key,
                                              float *word) {
#if NEO__PASS == NEO__PASS_WARP
    const int64_t from = NEO__LANE, step = NEO__W;
#else
    const int64_t from = 0, step = 1;
#endif
#if NEO__PASS != NEO__PASS_SCALAR && NEO__PASS != NEO__PASS_WARP
    float *number = word + 3 * count * ((rows->dim + 6) / 4);
    const uint64_t first = neo__bag_number(rows, row[0]) / 4;
    uint64_t differs = 0;
    int64_t blocks = 0;
    for (int64_t r = 0; r < count; r++) {
        const uint64_t block = neo__bag_number(rows, row[r]) / 4;
        const int64_t n = neo__bag_blocks_of(rows, row[r]);
        NEO__VI place = NEO__FN(lane_numbers)() + (uint32_t)block;
        for (int64_t c = 0; c < n; c += NEO__W)
            NEO__STORE(number + blocks + c, NEO__AS_F(place + (uint32_t)c));
        blocks += n;
        differs |= (block ^ first) | ((block + (uint64_t)n - 1) ^ first);
    }
    if (differs >> 32 == 0) {
        uint32_t k[20];
        NEO__FN(philox_keys)(key, (uint32_t)(first >> 32), 0, k);
        int64_t c = 0;
#if NEO__PASS == NEO__PASS_AVX512
        for (; c + 16 < blocks; c += 32)
            NEO__FN(philox_blocks)(number + c, k, 32, 0, word + 4 * c);
#endif
        for (; c < blocks; c += 16)
            NEO__FN(philox_blocks)(number + c, k, 16, 0, word + 4 * c);
        return;
    }
#endif
    for (int64_t r = 0; r < count; r++) {
        const int64_t n = neo__bag_blocks_of(rows, row[r]);
        for (int64_t i = from; i < n; i += step) {
            uint32_t x[4];
            neo__random_block(key, neo__bag_number(rows, row[r]) / 4 + (uint64_t)i, x);
            for (int k = 0; k < 4; k++) word[4 * i + k] = neo__f32_bits(x[k]);
        }
        word += 4 * n;
    }
}
/* The least lane; none is a NaN, and which 0 it is does not matter. */
NEO__KERNEL_INLINE float NEO__FN(least)(NEO__VF v) {
#if NEO__PASS == NEO__PASS_AVX2 || NEO__PASS == NEO__PASS_AVX512
#if NEO__PASS == NEO__PASS_AVX512
    __m256 half =
        _mm256_min_ps(_mm512_castps512_ps256(v), (__m256)_mm512_extractf64x4_pd((__m512d)v, 1));
#else
    __m256 half = (__m256)v;
#endif
    __m128 x = _mm_min_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    x = _mm_min_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_min_ss(x, _mm_shuffle_ps(x, x, 1)));
#else
    float lane[NEO__W];
    NEO__SPILL(lane, v);
    for (int i = 1; i < NEO__W; i++) lane[0] = NEO__MIN(lane[0], lane[i]);
    return lane[0];
#endif
}
/* Scale and bias of a row of i8 by its least and most; odd: not all of it is finite.
   Returns the scale; 0: all codes are 0. */
NEO__KERNEL_INLINE float NEO__FN(rows_scale_of)(int odd, float least, float most, float *scale) {
    float half = NEO__SUB1(NEO__MUL1(0.5f, most), NEO__MUL1(0.5f, least));
    float unit = NEO__DIV1(half, 127.0f);
    scale[0] = odd || unit < FLT_MIN ? 0.0f : unit;
    scale[1] = odd ? neo__f32_bits(0x7FC00000u) : NEO__ADD1(least, half); /* 0 of both signs: 0 */
    return scale[0];
}
/* The same; w is filled up to whole vectors. */
NEO__KERNEL_INLINE float NEO__FN(rows_scale)(const float *w, int64_t n, float *scale) {
    NEO__VF low = NEO__LOAD(w), high = low, zero = NEO__SET(0.0f), odd = zero;
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF x = NEO__LOAD(w + c);
        low = NEO__MIN_(x, low);
        high = NEO__MAX_(x, high);
        odd = NEO__FMA(x, zero, odd); /* a NaN if one of them is not finite */
    }
    odd = NEO__SELECT(NEO__EQ(odd, zero), zero, NEO__SET(1.0f));
    const int is_odd = NEO__ANY(NEO__GT(odd, zero));
    return NEO__FN(rows_scale_of)(is_odd, NEO__FN(least)(low), -NEO__FN(least)(0.0f - high), scale);
}
NEO__KERNEL_INLINE NEO__VI NEO__FN(i8_round)(NEO__VF w, NEO__VF inverse, NEO__VF bias, NEO__VI r,
                                      int stochastic) {
    NEO__VF x = (w - bias) * inverse;
    x = NEO__MIN_(NEO__SET(127.0f), NEO__MAX_(NEO__SET(-127.0f), x));
    if (!stochastic) return NEO__TO_I(x);
    NEO__VI n = NEO__FN(floor_i)(x);
    NEO__VF u = NEO__TO_F(r >> 8) * 0x1p-24f;
    return NEO__COUNT_IF(NEO__GT(x - NEO__TO_F(n), u), n);
}
/* A vector of codes, of which `left` are stored. */
NEO__KERNEL_INLINE void NEO__FN(row_store)(neo_dtype dtype, char *p, NEO__VI code, int64_t left) {
#if NEO__PASS == NEO__PASS_WARP
    if (NEO__LANE >= left) return;
    if (dtype == NEO_I8) NEO__STORE_B(p, code);
    else NEO__STORE_H(p, code);
#else
    int16_t few[16];
    int whole = NEO__W == 1 || left >= NEO__W;
    char *to = whole ? p : (char *)few;
    if (dtype == NEO_I8) NEO__STORE_B(to, code);
    else NEO__STORE_H(to, code);
    if (!whole) memcpy(p, few, (size_t)left * (dtype == NEO_I8 ? 1 : 2));
#endif
}
/* A vector of a row as codes. inverse, bias: of i8. */
NEO__KERNEL_INLINE NEO__VI NEO__FN(row_round)(neo_dtype dtype, NEO__VF x, NEO__VF inverse,
                                              NEO__VF bias, const float *word) {
    NEO__VI r = word ? NEO__AS_I(NEO__LOAD(word)) : NEO__SETI(0);
    if (dtype == NEO_F16) return NEO__FN(f16_round)(x, r);
    if (dtype == NEO_BF16) return NEO__FN(bf16_round)(x, r);
    return NEO__FN(i8_round)(x, inverse, bias, r, word != NULL);
}
NEO__KERNEL_FAR void NEO__FN(rows_encode)(const neo__bag_rows *rows, int64_t row, float *w,
                                               const float *word) {
    int64_t n = rows->dim, whole = neo__bag_room(n), size = rows->dtype == NEO_I8 ? 1 : 2;
    char *to = rows->data + row * rows->row_bytes;
    NEO__VF inverse = NEO__SET(0.0f), bias = inverse;
    if (!word && rows->dtype == NEO_F16) NEO__FN(f16_from_f32s)((uint16_t *)(void *)to, w, n);
    if (!word && rows->dtype == NEO_BF16) NEO__FN(bf16_from_f32s)((uint16_t *)(void *)to, w, n);
    if (!word && rows->dtype != NEO_I8) return;
    for (int64_t c = n; c < whole; c++) w[c] = w[0];
    if (rows->dtype == NEO_I8) {
        float *scale = rows->scale + 2 * row;
        if (NEO__FN(rows_scale)(w, n, scale) == 0.0f) {
            memset(to, 0, (size_t)n);
            return;
        }
        inverse = NEO__SET(NEO__DIV1(1.0f, scale[0])), bias = NEO__SET(scale[1]);
    }
    if (word) word += neo__bag_number(rows, row) % 4;
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VI code = NEO__FN(row_round)(rows->dtype, NEO__LOAD(w + c), inverse, bias,
                                          word ? word + c : NULL);
        NEO__FN(row_store)(rows->dtype, to + c * size, code, n - c);
    }
}
#endif

#if NEO__PASS != NEO__PASS_WARP
NEO__KERNEL_INLINE void NEO__FN(bag_fetch_row)(const float *row, int64_t dim) {
    for (int64_t c = 0; c < dim; c += 16) NEO__FETCH(row + c);
}
NEO__KERNEL_INLINE void NEO__FN(bag_fetch_id)(const neo__bag_rows *t, int64_t id) {
    const char *row = t->data + id * t->row_bytes;
    for (int64_t c = 0; c < t->row_bytes; c += 64) NEO__FETCH(row + c);
    if (t->scale) NEO__FETCH(t->scale + 2 * id);
}
/* Fetch rows [k, k_end) of the ids, which may run on into the next lookup. */
NEO__KERNEL_FAR void NEO__FN(bag_fetch_ahead)(const neo__bag_lookup *a, int is_i32, int64_t k,
                                                   int64_t k_end) {
    int64_t end = a->offsets[a->bags];
    for (; k < k_end && k < end; k++) {
        const int64_t id = neo__jagged_id(a->ids, is_i32, k);
        if ((uint64_t)id < (uint64_t)a->rows) NEO__FN(bag_fetch_id)(a->store, id);
    }
    for (; k < k_end && k - end < a->next_count; k++)
        NEO__FN(bag_fetch_id)(a->next_store, neo__jagged_id(a->ids, is_i32, a->next_id + k - end));
}

/* s += rows [k, k_end) of the ids, `dim` floats apart; with `fetches`, rows `ahead` of them are
   fetched. */
NEO__KERNEL_INLINE void NEO__FN(bag_sum)(const neo__bag_lookup *lookup, NEO__VF *s, int count,
                                         int64_t k, int64_t k_end, int64_t col, int64_t dim,
                                         int is_i32, int weighted, int64_t ahead, int fetches) {
    for (; k < k_end; k++) {
        const float *row;
        if (fetches) {
            row = lookup->table + neo__jagged_id(lookup->ids, is_i32, k + ahead) * dim + col;
            NEO__EACH(i, count) if (i * NEO__W % 16 == 0) NEO__FETCH(row + i * NEO__W);
        }
        NEO__VF w = NEO__SET(weighted ? lookup->weights[k] : 0.0f);
        row = lookup->table + neo__jagged_id(lookup->ids, is_i32, k) * dim + col;
        NEO__EACH(i, count) {
            NEO__VF x = NEO__LOAD(row + i * NEO__W);
            s[i] = weighted ? NEO__FMA(w, x, s[i]) : s[i] + x;
        }
    }
}
/* The sums of a bag to their place, divided by its length if it has a mean. */
NEO__KERNEL_INLINE void NEO__FN(bag_store)(float *to, NEO__VF *s, int count, int divides,
                                           int64_t length) {
    if (divides && length > 1) {
        NEO__VF w = NEO__SET((float)length);
        NEO__EACH(i, count) s[i] = s[i] / w;
    }
    NEO__EACH(i, count) NEO__STORE(to + i * NEO__W, s[i]);
}
/* Bags [b, b_end), `count` vectors of columns from col on. Near the end of the lookup the rows
   fetched ahead are those of the next one. */
NEO__KERNEL_INLINE void NEO__FN(bag_bags)(const neo__bag_lookup *lookup, int64_t b, int64_t b_end,
                                          int64_t col, int64_t dim, int is_i32, int count) {
    const int64_t ahead = lookup->ahead;
    int64_t k = lookup->offsets[b], near_end = lookup->offsets[lookup->bags] - ahead;
    float *to = lookup->out + b * lookup->out_stride + col;
    for (; b < b_end; b++, to += lookup->out_stride) {
        int64_t k_end = lookup->offsets[b + 1], length = k_end - k;
        NEO__VF s[8];
        NEO__EACH(i, count) s[i] = NEO__SET(0.0f);
        if (k_end <= near_end) {
            if (lookup->weights)
                NEO__FN(bag_sum)(lookup, s, count, k, k_end, col, dim, is_i32, 1, ahead, 1);
            else NEO__FN(bag_sum)(lookup, s, count, k, k_end, col, dim, is_i32, 0, ahead, 1);
        } else {
            if (col == 0) NEO__FN(bag_fetch_ahead)(lookup, is_i32, k + ahead, k_end + ahead);
            if (lookup->weights)
                NEO__FN(bag_sum)(lookup, s, count, k, k_end, col, dim, is_i32, 1, ahead, 0);
            else NEO__FN(bag_sum)(lookup, s, count, k, k_end, col, dim, is_i32, 0, ahead, 0);
        }
        k = k_end;
        NEO__FN(bag_store)(to, s, count, lookup->mean, length);
    }
}
/* rows_<n>: all bags, when a row is n vectors (then dim is a constant). chunk_<n>: a part of one
   bag. */
#define NEO__I32_IDS(lookup) (NEO__TRAINS && (lookup)->is_i32) /* neo_serve.h widens them */
#define NEO__BAG_POOL(N)                                                                           \
    NEO__KERNEL_FAR NEO__UNUSED void NEO__FN(bag_rows_##N)(const neo__bag_lookup *a) {             \
        if (NEO__I32_IDS(a))                                                                       \
            NEO__FN(bag_bags)(a, 0, a->bags, 0, (N)*NEO__W, 1, N);                                 \
        else                                                                                       \
            NEO__FN(bag_bags)(a, 0, a->bags, 0, (N)*NEO__W, 0, N);                                 \
    }                                                                                              \
    NEO__KERNEL_FAR void NEO__FN(bag_chunk_##N)(const neo__bag_lookup *a, int64_t b,               \
                                                int64_t col) {                                     \
        NEO__FN(bag_bags)(a, b, b + 1, col, a->dim, NEO__I32_IDS(a), N);                           \
    }
NEO__BAG_POOL(8)
NEO__BAG_POOL(4)
NEO__BAG_POOL(2)
NEO__BAG_POOL(1)

/* The last n < NEO__W columns of bags [b, b_end). */
NEO__KERNEL_FAR void NEO__FN(bag_chunk_rest)(const neo__bag_lookup *lookup, int64_t b,
                                             int64_t b_end, int64_t col) {
    const int64_t dim = lookup->dim, n = dim - col, ahead = lookup->ahead;
    const int64_t near_end = lookup->offsets[lookup->bags] - ahead;
    const int is_i32 = NEO__I32_IDS(lookup);
    const float *table = lookup->table + col;
    float *to = lookup->out + b * lookup->out_stride + col;
    for (; b < b_end; b++, to += lookup->out_stride) {
        int64_t k = lookup->offsets[b], k_end = lookup->offsets[b + 1], length = k_end - k;
        const int fetch = k_end <= near_end;
        NEO__VF s = NEO__SET(0.0f);
        if (!fetch && col == 0) NEO__FN(bag_fetch_ahead)(lookup, is_i32, k + ahead, k_end + ahead);
        for (; k < k_end; k++) {
            NEO__VF x = NEO__LOADN(table + neo__jagged_id(lookup->ids, is_i32, k) * dim, n);
            if (fetch) {
                const float *row = table + neo__jagged_id(lookup->ids, is_i32, k + ahead) * dim;
                NEO__FETCH(row);
                if (n > 1) NEO__FETCH(row + NEO__W - 1); /* lanes not read are waited for too */
            }
            s = lookup->weights ? NEO__FMA(NEO__SET(lookup->weights[k]), x, s) : s + x;
        }
        if (lookup->mean && length > 1) s = s / (float)length;
        NEO__STOREN(to, s, n);
    }
}

/* Rows of one column, of all bags. */
NEO__KERNEL_FAR void NEO__FN(bag_ones)(const neo__bag_lookup *lookup) {
    const int64_t ahead = lookup->ahead, *offsets = lookup->offsets;
    const int64_t near_end = offsets[lookup->bags] - ahead;
    const int is_i32 = NEO__I32_IDS(lookup);
    const float *table = lookup->table, *weights = lookup->weights;
    float *to = lookup->out;
    for (int64_t b = 0, k = offsets[0]; b < lookup->bags; b++, to += lookup->out_stride) {
        const int64_t begin = k, end = offsets[b + 1];
        const int fetch = end <= near_end;
        float s = 0.0f;
        if (!fetch) NEO__FN(bag_fetch_ahead)(lookup, is_i32, k + ahead, end + ahead);
        for (; k < end; k++) {
            if (fetch) NEO__FETCH(table + neo__jagged_id(lookup->ids, is_i32, k + ahead));
            const float x = table[neo__jagged_id(lookup->ids, is_i32, k)];
            s = weights ? NEO__FMA1(weights[k], x, s) : NEO__ADD1(s, x);
        }
        *to = lookup->mean && end - begin > 1 ? NEO__DIV1(s, (float)(end - begin)) : s;
    }
}

/* ---- sums over parts; one row ---- */

NEO__KERNEL_FAR void NEO__FN(part_join)(neo__part_tree *t) {
    t->depth--;
    const int64_t n = t->n;
    float *to = t->sum + (t->depth - 1) * t->stride;
    const float *from = t->sum + t->depth * t->stride;
    t->number[t->depth - 1] = t->number[t->depth];
    for (int64_t c = 0; c < n; c += NEO__W) NEO__STC(to, NEO__LDC(to) + NEO__LDC(from));
}
/* Push part `number`: returns the place of its sum. */
NEO__KERNEL float *NEO__FN(part_push)(neo__part_tree *t, int64_t number) {
    while (neo__part_joins(t->number, t->depth, number)) NEO__FN(part_join)(t);
    t->number[t->depth] = number;
    return t->sum + t->depth++ * t->stride;
}

NEO__KERNEL_INLINE int64_t NEO__FN(bag_clamp)(const neo__bag_lookup *a, int64_t id) {
    if (id >= 0 && id < a->rows) return id;
    if (a->bounds == NEO_BOUNDS_DROP) return -1;
    return id < 0 ? 0 : a->rows - 1;
}
/* Columns [col, col + n) of a row as f32: where they are, or decoded in room. */
NEO__KERNEL_INLINE const float *NEO__FN(bag_row)(const neo__bag_lookup *a, int64_t id, int64_t col,
                                          int64_t n, float *room) {
    if (a->table) return a->table + id * a->dim + col;
    NEO__FN(rows_decode)(a->store, id, col, n, room);
    return room;
}
/* ---- the lookup of any ids: a bounds policy, buckets of rows ----
   Rows add in the order of their ids, each to the sum of its bucket, in the nearest cache; the sums
   of a bag then add by the tree, eight at a time. A bucket without rows is +0, which is as good as
   absent, since all is added to +0 at the end. Some bags go together: first the buckets of their
   ids, then their rows, then their trees, so that a processor knows a sum's address long before it
   is read, and no sum is read just after it was written: either costs as much as many rows. Above
   NEO__POOL_BUCKETS buckets each group of so many has a pass over the ids of a bag.

   Bags of at most eight buckets, or all of at most three ids, go one by one where the ids are all
   inside and have no weights: so the rows fetched ahead are asked for evenly, not while rows add
   alone. Up to three rows add in registers.

   A wide row takes passes over its columns: fewer lines of a row on their way from memory at a
   time, so those of more rows, are read faster. */
#if NEO__PASS != NEO__PASS_WARP
/* ONE_WIDTH: the same sums in less code, where size counts, or vectors of one number gain nothing
   from the other widths. */
#undef NEO__ONE_WIDTH
#if NEO__PASS == NEO__PASS_SCALAR || defined(NEO_INFERENCE)
#define NEO__ONE_WIDTH 1
#else
#define NEO__ONE_WIDTH 0
#endif
/* A bit for each group of buckets that bag [k, k_end) has rows of. */
NEO__KERNEL_FAR uint64_t NEO__FN(bag_groups)(const neo__bag_lookup *a, int64_t k, int64_t k_end) {
    uint64_t groups = 0;
    for (; k < k_end; k++) {
        const int64_t id = NEO__FN(bag_clamp)(a, neo__jagged_id(a->ids, NEO__I32_IDS(a), k));
        if (id >= 0) groups |= UINT64_C(1) << neo__bag_bucket(a, id) / NEO__POOL_BUCKETS;
    }
    return groups ? groups : 1;
}
/* Adds the buckets of n ids that are all inside to their slots. */
NEO__KERNEL_INLINE void NEO__FN(bag_slots)(const neo__bag_lookup *a, int is_i32, int64_t k,
                                           int64_t n, int32_t *slot) {
    const double shift = a->bucket_shift, scale = a->bucket_scale;
    int64_t i = 0;
    for (; !NEO__ONE_WIDTH && i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            slot[i + j] += (int32_t)(
                ((double)neo__jagged_id(a->ids, is_i32, k + i + j) + shift) * scale);
    for (; i < n; i++)
        slot[i] += (int32_t)(((double)neo__jagged_id(a->ids, is_i32, k + i) + shift) * scale);
}
/* The rows of the ids [k, k_end) of bags from b on, and the slots of their sums: a bag's first slot
   is that of bucket `first`. And the ids whose rows are fetched meanwhile, which need not be
   inside: a fetch reads nothing. */
NEO__KERNEL_FAR void NEO__FN(bag_find)(const neo__bag_lookup *lookup, int64_t first, int64_t b,
                                       int64_t k, int64_t k_end, neo__bag_some *some) {
    const int64_t n = k_end - k, slots = some->slots, *offsets = lookup->offsets;
    const int is_i32 = NEO__I32_IDS(lookup);
    int32_t *slot = some->slot;
    for (int32_t from = 0; b < some->b_end; b++) {
        for (int64_t i = NEO__MAX(offsets[b] - k, 0); i < NEO__MIN(offsets[b + 1] - k, n); i += 8)
            for (int j = 0; j < 8; j++) slot[i + j] = from; /* past its end the next bag's follow */
        from += NEO__ONE_WIDTH || offsets[b + 1] > offsets[b] ? (int32_t)some->apart : 0;
    }
    some->row = is_i32 ? some->rows : (const int64_t *)lookup->ids + k;
    some->next = is_i32 ? some->nexts : some->row + some->ahead;
    for (int64_t i = 0; is_i32 && i < n; i++) {
        some->rows[i] = ((const int32_t *)lookup->ids)[k + i];
        some->nexts[i] = ((const int32_t *)lookup->ids)[k + i + some->ahead];
    }
    if (lookup->inside && !lookup->store->line_row && neo__bag_bucket_is_scaled(lookup) &&
        lookup->buckets <= NEO__POOL_BUCKETS) {
        if (is_i32) NEO__FN(bag_slots)(lookup, 1, k, n, slot);
        else NEO__FN(bag_slots)(lookup, 0, k, n, slot);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = NEO__FN(bag_clamp)(lookup, some->row[i]);
        const int64_t its = id < 0 ? -1 : neo__bag_bucket(lookup, id) - first;
        const int in = its >= 0 && its < slots;
        some->rows[i] = in ? id : -1;
        slot[i] += in ? (int32_t)its : 0;
    }
    some->row = some->rows;
}
/* A row of some ids ahead: `count` vectors of its columns from col on, which in row 0 are at data.
   The id need not be inside. */
NEO__KERNEL_INLINE void NEO__FN(bag_fetch_some)(const char *data, const float *scales, int64_t id,
                                                int64_t row_bytes, int64_t col, int count,
                                                int size) {
    const uintptr_t later = (uintptr_t)id, row = (uintptr_t)data + later * (uintptr_t)row_bytes;
    NEO__EACH(v, count)
    if (v * NEO__W * size % 64 == 0)
        NEO__FETCH((const char *)(row + (uintptr_t)(v * NEO__W * size)));
    if (size == 1 && col == 0)
        NEO__FETCH((const char *)((uintptr_t)scales + later * (2 * sizeof *scales)));
}
/* The rows of some, ids [k, k_end), each added to the sum in its slot. */
NEO__KERNEL_INLINE void NEO__FN(bag_any_rows)(const neo__bag_lookup *lookup, neo_dtype dtype,
                                              float *sum, const neo__bag_some *some, int64_t k,
                                              int64_t k_end, int64_t col, int64_t left, int count) {
    const neo__bag_rows *t = lookup->store;
    const int size = dtype == NEO_F32 ? 4 : dtype == NEO_I8 ? 1 : 2;
    const int64_t row_bytes = t->row_bytes, *ids = some->row, *next = some->next;
    const int32_t *slot = some->slot;
    const char *data = t->data + col * size;
    const float *weights = lookup->weights ? lookup->weights + k : NULL, *scales = t->scale;
    for (int64_t r = 0; r < k_end - k; r++) {
        NEO__FN(bag_fetch_some)(data, scales, next[r], row_bytes, col, count, size);
        if (ids[r] < 0) continue;
        const char *row = data + ids[r] * row_bytes;
        float *to = sum + slot[r] * (count * NEO__W);
        NEO__VF w = NEO__SET(1.0f), scale = w, bias = w;
        if (weights) w = NEO__SET(weights[r]);
        if (dtype == NEO_I8)
            scale = NEO__SET(scales[2 * ids[r]]), bias = NEO__SET(scales[2 * ids[r] + 1]);
        NEO__EACH(v, count) {
            const char *p = row + v * NEO__W * size;
            const NEO__VF x = dtype == NEO_F32
                                  ? NEO__FN(load_left)((const float *)(const void *)p, left)
                                  : NEO__FN(row_load_left)(dtype, p, left, scale, bias);
            NEO__STORE(to + v * NEO__W, NEO__FMA(w, x, NEO__LOAD(to + v * NEO__W)));
        }
    }
}
/* The sum of eight vectors. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(tree_eight)(const NEO__VF *x) {
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(sum_eight)(const float *p, int64_t stride) {
    NEO__VF x[8];
    NEO__EACH(j, 8) x[j] = NEO__LOAD(p + j * stride);
    return NEO__FN(tree_eight)(x);
}
/* A bit for each eight of a bag's buckets that may have rows: all, of many ids. */
NEO__KERNEL_INLINE uint32_t NEO__FN(bag_eights)(const neo__bag_lookup *lookup,
                                                const neo__bag_some *some, int64_t bag,
                                                int count) {
    const int64_t *offsets = lookup->offsets, from = offsets[some->b];
    const int32_t *slot = some->slot, apart = (int32_t)some->apart,
                  first = slot[offsets[bag] - from] / apart * apart;
    int all = NEO__ONE_WIDTH || count == 1 || offsets[bag + 1] - offsets[bag] > 2 * count;
    uint32_t eights = all ? (1u << count) - 1 : 0;
    for (int64_t i = offsets[bag] - from; !all && i < offsets[bag + 1] - from; i++)
        eights |= 1u << (uint32_t)(slot[i] - first) / 8;
    return eights;
}
/* The sum over all buckets goes to the first, all others are zeros again: over each eight, then by
   the tree over eights. What has no rows is zeros. */
NEO__KERNEL_FAR void NEO__FN(sum_eights)(float *sum, int eights, uint32_t has, int64_t stride) {
    for (int e = 0; e < eights; e++) {
        float *to = sum + 8 * e * stride;
        if (!(has >> e & 1)) continue;
        for (int64_t c = 0; c < stride; c += NEO__W) {
            NEO__STORE(to + c, NEO__FN(sum_eight)(to + c, stride));
            NEO__EACH(j, NEO__ONE_WIDTH ? 0 : 7)
            NEO__STORE(to + (j + 1) * stride + c, NEO__SET(0.0f));
        }
        if (NEO__ONE_WIDTH) memset(to + stride, 0, sizeof *to * 7 * (size_t)stride);
    }
    for (int e = eights; e > 1; e = (e + 1) / 2) { /* neighbours */
        uint32_t both_have = 0;
        for (int i = 0; i < e; i += 2) {
            float *to = sum + 4 * i * stride, *from = sum + 8 * i * stride;
            if (!(has >> i & 3)) continue;
            both_have |= 1u << i / 2;
            for (int64_t c = 0; c < stride; c += NEO__W) {
                const NEO__VF next = i + 1 < e ? NEO__LOAD(from + 8 * stride + c) : NEO__SET(0.0f);
                const NEO__VF both = NEO__LOAD(from + c) + next;
                if (i + 1 < e) NEO__STORE(from + 8 * stride + c, NEO__SET(0.0f));
                NEO__STORE(from + c, NEO__SET(0.0f));
                NEO__STORE(to + c, both);
            }
        }
        has = both_have;
    }
}
/* The sums of a bag of one bucket, or of more than eight, or of some of its buckets, to their
   place. */
NEO__KERNEL_FAR void NEO__FN(bag_end)(const neo__bag_lookup *lookup, float *sum,
                                      const neo__bag_some *some, int64_t bag, int64_t col,
                                      int64_t n, neo__part_tree *tree, uint64_t groups) {
    const int64_t length = lookup->offsets[bag + 1] - lookup->offsets[bag], slots = some->slots;
    const int eights = (int)(slots / 8), more = (groups & (groups - 1)) != 0;
    float *to = lookup->out + bag * lookup->out_stride + col, *from = sum;
    if (lookup->buckets > 1 && length > 0)
        NEO__FN(sum_eights)(sum, eights, NEO__FN(bag_eights)(lookup, some, bag, eights),
                            tree->stride);
    if (tree->depth || more) {
        float *push = NEO__FN(part_push)(tree, __builtin_ctzll(groups));
        memcpy(push, sum, sizeof *sum * (size_t)tree->stride);
        while (!more && tree->depth > 1) NEO__FN(part_join)(tree);
        from = tree->sum;
    }
    for (int64_t c = 0; !more && c < n; c += NEO__W) {
        NEO__VF s = NEO__LOAD(from + c);
        if (lookup->buckets > 1) s = s + NEO__SET(0.0f);
        if (lookup->mean && length > 1) s = s / (float)length;
        NEO__STC(to, s);
    }
    memset(sum, 0, sizeof *sum * (size_t)tree->stride);
}
/* Some bags, `count` vectors of columns from col on; there are `left` columns. sum: zeros, before
   and after. */
NEO__KERNEL_INLINE void NEO__FN(bag_any)(const neo__bag_lookup *lookup, neo__bag_some *some,
                                         float *sum, int64_t col, int64_t left, int count) {
    float part[(int)NEO__PART_DEPTH * 8 * NEO__W];
    const int64_t stride = count * NEO__W, b = some->b, b_end = some->b_end, slots = some->slots,
                  *offsets = lookup->offsets, from = offsets[b], last = offsets[b_end],
                  room = some->apart * stride, out_stride = lookup->out_stride;
    const neo_dtype dtype = lookup->store->dtype;
    const int mean = lookup->mean;
    neo__part_tree tree;
    tree.sum = part, tree.stride = stride, tree.n = stride, tree.depth = 0;
    uint64_t groups =
        lookup->buckets > NEO__POOL_BUCKETS ? NEO__FN(bag_groups)(lookup, from, last) : 1;
    for (; groups; groups &= groups - 1) {
        const int64_t first = NEO__POOL_BUCKETS * __builtin_ctzll(groups);
        float *p = sum, *to = lookup->out + b * out_stride + col;
        for (int64_t bag = 0; bag < b_end - b; bag++) /* a store that waits holds up the next */
            NEO__EACH(v, count)
            if (v * NEO__W % 16 == 0) __builtin_prefetch(to + bag * out_stride + v * NEO__W, 1);
        for (int64_t k = from, next; k < last; k = next) {
            next = NEO__MIN(k + NEO__POOL_IDS, last);
            if (!some->known) NEO__FN(bag_find)(lookup, first, b, k, next, some);
#define NEO__ANY_ROWS(T) NEO__FN(bag_any_rows)(lookup, T, sum, some, k, next, col, left, count)
#if NEO__ONE_WIDTH
            NEO__ANY_ROWS(dtype);
#else
            if (NEO__W * count > 64) NEO__ANY_ROWS(NEO_I8);
            else if (dtype == NEO_F32) NEO__ANY_ROWS(NEO_F32);
            else if (dtype == NEO_F16) NEO__ANY_ROWS(NEO_F16);
            else if (dtype == NEO_BF16) NEO__ANY_ROWS(NEO_BF16);
            else NEO__ANY_ROWS(NEO_I8);
#endif
#undef NEO__ANY_ROWS
        }
        int other = NEO__ONE_WIDTH || slots > 8 || lookup->buckets == 1 || left < stride;
        for (int64_t bag = b; bag < b_end; bag++, to += out_stride) {
            const int64_t length = offsets[bag + 1] - offsets[bag];
            if (!NEO__ONE_WIDTH && length == 0) {
                for (int64_t c = 0; c < left && c < stride; c += NEO__W)
                    NEO__FN(store_left)(to + c, NEO__SET(0.0f), left - c);
                continue;
            }
            if (other) {
                NEO__FN(bag_end)(lookup, p, some, bag, col, left, &tree, groups);
            } else {
                NEO__VF s[8];
                NEO__EACH(v, count)
                s[v] = NEO__FN(sum_eight)(p + v * NEO__W, stride) + NEO__SET(0.0f);
                NEO__EACH(v, count)
                NEO__EACH(j, 8) NEO__STORE(p + j * stride + v * NEO__W, NEO__SET(0.0f));
                NEO__FN(bag_store)(to, s, count, mean, length);
            }
            p += room;
        }
    }
}
#if !NEO__ONE_WIDTH
#define NEO__BAG_ANY(N)                                                                            \
    NEO__KERNEL_FAR void NEO__FN(bag_any_##N)(const neo__bag_lookup *a, neo__bag_some *some,       \
                                              float *sum, int64_t col) {                           \
        NEO__FN(bag_any)(a, some, sum, col, (N)*NEO__W, N);                                        \
    }
NEO__BAG_ANY(8)
NEO__BAG_ANY(4)
NEO__BAG_ANY(2)
NEO__BAG_ANY(1)
#undef NEO__BAG_ANY
#endif
NEO__KERNEL_FAR void NEO__FN(bag_any_rest)(const neo__bag_lookup *a, neo__bag_some *some,
                                           float *sum, int64_t col) {
    NEO__FN(bag_any)(a, some, sum, col, NEO__MIN(a->dim - col, (int64_t)NEO__W), 1);
}
/* Bags [b, last), columns from first_col on. */
NEO__KERNEL_FAR void NEO__FN(bag_any_from)(const neo__bag_lookup *lookup, int64_t b, int64_t last,
                                           int64_t first_col) {
    enum { WIDTH = NEO__ONE_WIDTH ? 1 : 8, SOME = 64 };
    enum { FLOATS = (NEO__POOL_BUCKETS + 1) * WIDTH * NEO__W };
    const int64_t widest = lookup->store->dtype == NEO_I8 ? 128 : 64; /* columns of a pass */
    float sum[NEO__MAX((int)FLOATS, 4096)] __attribute__((aligned(64)));
    neo__bag_some some;
    const int64_t dim = lookup->dim, *offsets = lookup->offsets,
                  vectors = NEO__MIN((NEO__MIN(dim - first_col, widest) + NEO__W - 1) / NEO__W,
                                     (int64_t)WIDTH);
    some.slots = NEO__MIN((lookup->buckets + 7) / 8 * 8, NEO__POOL_BUCKETS);
    some.apart = some.slots + 1;
    const int64_t room = some.apart * vectors * NEO__W,
                  most = lookup->buckets > NEO__POOL_BUCKETS ? 1 : NEO__MAX(1, 4096 / room),
                  ahead = neo__bags_far_ahead(lookup);
    memset(sum, 0, (size_t)(NEO__MIN(most, last - b) * room) * sizeof *sum);
    for (; b < last; b = some.b_end) {
        int64_t col = first_col, end = b + 1;
        NEO__UNUSED int64_t full = 1; /* bags with sums: all but empty ones */
        while (end < last && end - b < (NEO__ONE_WIDTH ? most : (int64_t)SOME) &&
               (NEO__ONE_WIDTH || (full += offsets[end + 1] > offsets[end]) <= most) &&
               offsets[end + 1] - offsets[b] <= NEO__POOL_IDS)
            end++;
        some.b = b;
        some.b_end = end;
        some.known = lookup->buckets <= NEO__POOL_BUCKETS &&
                     offsets[end] - offsets[b] <= NEO__POOL_IDS;
        some.ahead = offsets[end] + ahead <= offsets[lookup->bags] ? ahead : 0;
        if (some.known)
            NEO__FN(bag_find)(lookup, 0, b, offsets[b], offsets[end], &some);
        if (!some.ahead && col == 0)
            NEO__FN(bag_fetch_ahead)(lookup, NEO__I32_IDS(lookup), offsets[b] + ahead,
                                     offsets[end] + ahead);
#if !NEO__ONE_WIDTH
        for (; 8 * NEO__W <= widest && col + 8 * NEO__W <= dim; col += 8 * NEO__W)
            NEO__FN(bag_any_8)(lookup, &some, sum, col);
        for (; 4 * NEO__W <= widest && col + 4 * NEO__W <= dim; col += 4 * NEO__W)
            NEO__FN(bag_any_4)(lookup, &some, sum, col);
        for (; col + 2 * NEO__W <= dim; col += 2 * NEO__W)
            NEO__FN(bag_any_2)(lookup, &some, sum, col);
        if (col + NEO__W <= dim) NEO__FN(bag_any_1)(lookup, &some, sum, col), col += NEO__W;
#endif
        for (; col < dim; col += NEO__W) NEO__FN(bag_any_rest)(lookup, &some, sum, col);
    }
}
#if !NEO__ONE_WIDTH
/* Three ids in the order in which they add: first the two whose buckets part lowest in the tree. No
   branch, which would be taken by chance. */
NEO__KERNEL_INLINE void NEO__FN(order_three)(const int64_t *id, const int32_t *in, int64_t *to) {
    const int32_t ab = in[0] ^ in[1], ac = in[0] ^ in[2], bc = ab ^ ac;
    const int64_t later = (id[0] ^ id[2]) & -(int64_t)((bc < ab) & (bc < ac)),
                  ends = (id[1] ^ id[2]) & -(int64_t)((ac < ab) & (ac < bc));
    to[0] = id[0] ^ later, to[1] = id[1] ^ ends, to[2] = id[2] ^ later ^ ends;
}
/* Some of the ids from k on, up to `last`: their buckets and rows. Returns how many. */
NEO__KERNEL_FAR int64_t NEO__FN(bag_find_near)(const neo__bag_lookup *lookup, int64_t k,
                                               int64_t last, int64_t col, neo__bag_some *some) {
    const int64_t ahead = neo__bags_far_ahead(lookup),
                  near_end = lookup->offsets[lookup->bags] - ahead,
                  most = k + NEO__POOL_IDS <= near_end ? NEO__POOL_IDS : 16, /* fetched at once */
                  k_end = NEO__MIN(k + most, last);
    some->slots = 8, some->b_end = 0; /* no bag has a slot of its own */
    some->ahead = k_end <= near_end ? ahead : 0;
    memset(some->slot, 0, sizeof *some->slot * (size_t)(k_end - k));
    NEO__FN(bag_find)(lookup, 0, 0, k, k_end, some);
    if (!some->ahead && col == 0)
        NEO__FN(bag_fetch_ahead)(lookup, NEO__I32_IDS(lookup), k + ahead, k_end + ahead);
    return k_end - k;
}
/* `count` vectors of columns of a row, which are at `row`. */
NEO__KERNEL_INLINE void NEO__FN(bag_load)(neo_dtype dtype, const char *row, const float *scales,
                                          int64_t id, NEO__VF *x, int count) {
    const int size = dtype == NEO_F32 ? 4 : dtype == NEO_I8 ? 1 : 2;
    NEO__VF scale = NEO__SET(0.0f), bias = scale;
    if (dtype == NEO_I8) scale = NEO__SET(scales[2 * id]), bias = NEO__SET(scales[2 * id + 1]);
    NEO__EACH(v, count) {
        const char *p = row + v * NEO__W * size;
        x[v] = dtype == NEO_F32 ? NEO__LOAD((const float *)(const void *)p)
                                : NEO__FN(row_load)(dtype, p, scale, bias);
    }
}
/* So many zeros are what a bucket's first row adds to; and where eight sums take no more floats,
   their place: then each bag leaves zeros, which takes longer than to choose if rows are wide. */
#define NEO__NEAR_ZEROS 256
#define NEO__NEAR_WIDE(count) (8 * (count)*NEO__W > NEO__NEAR_ZEROS)
/* Some of the ids, [r, end): their rows add to the sums of their buckets. has: a bit of each bucket
   that has rows; returns it. */
NEO__KERNEL_INLINE uint32_t NEO__FN(bag_near_rows)(const neo__bag_rows *store, neo_dtype dtype,
                                                   const neo__bag_some *some, int64_t r,
                                                   int64_t end, int64_t col, const float *zeros,
                                                   float *sum, uint32_t has, int count) {
    const int size = dtype == NEO_F32 ? 4 : dtype == NEO_I8 ? 1 : 2;
    const int64_t row_bytes = store->row_bytes, *ids = some->row, *next = some->next;
    const int32_t *slot = some->slot;
    const char *data = store->data + col * size;
    const float *scales = store->scale;
    for (; r < end; r++) {
        float *at = sum + (size_t)(uint32_t)slot[r] * (size_t)(count * NEO__W);
        const float *from = !NEO__NEAR_WIDE(count) || has >> slot[r] & 1 ? at : zeros;
        NEO__VF x[8];
        NEO__FN(bag_fetch_some)(data, scales, next[r], row_bytes, col, count, size);
        NEO__FN(bag_load)(dtype, data + ids[r] * row_bytes, scales, ids[r], x, count);
        NEO__EACH(v, count) NEO__STORE(at + v * NEO__W, NEO__LOAD(from + v * NEO__W) + x[v]);
        has |= 1u << slot[r];
    }
    return has;
}
/* The sums of eight buckets add by the tree. */
NEO__KERNEL_INLINE void NEO__FN(bag_near_tree)(const float *zeros, float *sum, uint32_t has,
                                               NEO__VF *s, int count) {
    const float *in[8];
    NEO__EACH(j, 8)
    in[j] = !NEO__NEAR_WIDE(count) || has >> j & 1 ? sum + j * count * NEO__W : zeros;
    NEO__EACH(v, count) {
        NEO__VF x[8];
        NEO__EACH(j, 8) x[j] = NEO__LOAD(in[j] + v * NEO__W);
        s[v] = NEO__FN(tree_eight)(x) + NEO__SET(0.0f);
        if (!NEO__NEAR_WIDE(count))
            NEO__EACH(j, 8) NEO__STORE(sum + (j * count + v) * NEO__W, NEO__SET(0.0f));
    }
}
/* Bags [b, b_end) of at most eight buckets, or of at most three ids, `count` vectors of columns
   from col on; all ids are inside and have no weights. sums: NEO__NEAR_ZEROS zeros, before and
   after, and room for those of eight buckets. */
NEO__KERNEL_INLINE void NEO__FN(bag_near)(const neo__bag_lookup *lookup, neo_dtype dtype, int64_t b,
                                          int64_t b_end, int64_t col, float *sums, int count) {
    const int size = dtype == NEO_F32 ? 4 : dtype == NEO_I8 ? 1 : 2;
    const neo__bag_rows store = *lookup->store; /* a copy, which no store to a sum may change */
    const int64_t row_bytes = store.row_bytes, *offsets = lookup->offsets, last = offsets[b_end],
                  stride = lookup->out_stride;
    const char *data = store.data + col * size;
    const float *scales = store.scale;
    const int mean = lookup->mean;
    float *to = lookup->out + b * stride + col;
    float *sum = NEO__NEAR_WIDE(count) ? sums + NEO__NEAR_ZEROS : sums;
    int64_t r = 0, found = 0;
    neo__bag_some some;
    some.apart = 0;
#define NEO__NEAR_FETCH(i)                                                                         \
    NEO__FN(bag_fetch_some)(data, scales, some.next[i], row_bytes, col, count, size)
#define NEO__NEAR_LOAD(id, x)                                                                      \
    NEO__FN(bag_load)(dtype, data + (id)*row_bytes, scales, id, x, count)
    for (; b < b_end; b++, to += stride) {
        const int64_t length = offsets[b + 1] - offsets[b];
        NEO__VF s[8], x[8], y[8];
        if (length > found - r)
            r = 0, found = NEO__FN(bag_find_near)(lookup, offsets[b], last, col, &some);
        if (length == 3) {
            int64_t in[3];
            NEO__FN(order_three)(some.row + r, some.slot + r, in);
            NEO__EACH(i, 3) NEO__NEAR_FETCH(r + i);
            NEO__NEAR_LOAD(in[0], s);
            NEO__NEAR_LOAD(in[1], x);
            NEO__NEAR_LOAD(in[2], y);
            NEO__EACH(v, count) s[v] = ((s[v] + x[v]) + y[v]) + NEO__SET(0.0f);
            r += 3;
        } else if (length < 3) {
            NEO__EACH(v, count) s[v] = NEO__SET(0.0f);
            for (const int64_t end = r + length; r < end; r++) {
                NEO__NEAR_FETCH(r);
                NEO__NEAR_LOAD(some.row[r], x);
                NEO__EACH(v, count) s[v] = s[v] + x[v];
            }
        } else {
            uint32_t has = 0;
            int64_t end = r + length;
            for (int64_t left; end > found; r = 0, end = left) { /* a long bag */
                left = end - found;
                has = NEO__FN(bag_near_rows)(&store, dtype, &some, r, found, col, sums, sum, has,
                                             count);
                found = NEO__FN(bag_find_near)(lookup, offsets[b + 1] - left, last, col, &some);
            }
            has = NEO__FN(bag_near_rows)(&store, dtype, &some, r, end, col, sums, sum, has, count);
            r = end;
            NEO__FN(bag_near_tree)(sums, sum, has, s, count);
        }
        NEO__FN(bag_store)(to, s, count, mean, length);
    }
#undef NEO__NEAR_FETCH
#undef NEO__NEAR_LOAD
}
#define NEO__BAG_NEAR(N)                                                                           \
    NEO__KERNEL_FAR void NEO__FN(bag_near_##N)(const neo__bag_lookup *a, int64_t b, int64_t b_end, \
                                               int64_t col, float *sums) {                         \
        const neo_dtype dtype = a->store->dtype;                                                   \
        if (dtype == NEO_F32) NEO__FN(bag_near)(a, NEO_F32, b, b_end, col, sums, N);               \
        else if (dtype == NEO_F16) NEO__FN(bag_near)(a, NEO_F16, b, b_end, col, sums, N);          \
        else if (dtype == NEO_BF16) NEO__FN(bag_near)(a, NEO_BF16, b, b_end, col, sums, N);        \
        else NEO__FN(bag_near)(a, NEO_I8, b, b_end, col, sums, N);                                 \
    }
NEO__BAG_NEAR(8)
NEO__BAG_NEAR(4)
NEO__BAG_NEAR(2)
NEO__BAG_NEAR(1)
#undef NEO__BAG_NEAR
NEO__KERNEL_FAR void NEO__FN(bag_pool_near)(const neo__bag_lookup *lookup) {
    enum { SOME = 64 };
    const int64_t dim = lookup->dim, *offsets = lookup->offsets,
                  widest = lookup->store->dtype == NEO_F32 ? 64 : 128, vectors = dim / NEO__W;
    const int one_pass = dim % NEO__W == 0 && (vectors & (vectors - 1)) == 0 &&
                         dim <= NEO__MIN(widest, 8 * NEO__W);
    float sums[NEO__NEAR_ZEROS + 64 * NEO__W] __attribute__((aligned(64)));
    memset(sums, 0, sizeof *sums * NEO__NEAR_ZEROS);
    for (int64_t b = 0, end; b < lookup->bags; b = end) {
        int64_t col = 0;
        for (end = b + 1; end < lookup->bags; end++) /* whose rows are near in the next pass */
            if (!one_pass && (offsets[end + 1] - offsets[b] > NEO__POOL_IDS || end - b == SOME))
                break;
        for (; 8 * NEO__W <= widest && col + 8 * NEO__W <= dim; col += 8 * NEO__W)
            NEO__FN(bag_near_8)(lookup, b, end, col, sums);
        for (; 4 * NEO__W <= widest && col + 4 * NEO__W <= dim; col += 4 * NEO__W)
            NEO__FN(bag_near_4)(lookup, b, end, col, sums);
        for (; col + 2 * NEO__W <= dim; col += 2 * NEO__W)
            NEO__FN(bag_near_2)(lookup, b, end, col, sums);
        for (; col + NEO__W <= dim; col += NEO__W) NEO__FN(bag_near_1)(lookup, b, end, col, sums);
        if (col < dim) NEO__FN(bag_any_from)(lookup, b, end, col);
    }
}
#endif
NEO__KERNEL void NEO__FN(bag_pool_any)(const neo__bag_lookup *lookup) {
#if NEO__PASS == NEO__PASS_AVX512
    if (lookup->dim <= NEO__W / 2) {
        NEO__FN8(bag_pool_any)(lookup);
        return;
    }
#endif
#if !NEO__ONE_WIDTH
    int one_by_one = lookup->inside && !lookup->weights && !lookup->store->line_row &&
                     lookup->buckets > 1 && lookup->buckets <= NEO__POOL_BUCKETS &&
                     lookup->dim >= NEO__W && neo__bag_bucket_is_scaled(lookup);
    for (int64_t b = 0; one_by_one && lookup->buckets > 8 && b < lookup->bags; b++)
        one_by_one = lookup->offsets[b + 1] - lookup->offsets[b] <= 3;
    if (one_by_one) {
        NEO__FN(bag_pool_near)(lookup);
        return;
    }
#endif
    NEO__FN(bag_any_from)(lookup, 0, lookup->bags, 0);
}
#endif

/* ---- the lookup of ids that are all inside, in one bucket ---- */

#if NEO__PASS != NEO__PASS_SCALAR && !defined(NEO_INFERENCE)
/* s += narrow rows [k, k_end) of the ids. An id without a weight has weight 1, which rounds as the
   sum does. */
NEO__KERNEL_INLINE void NEO__FN(bag_sum_narrow)(const neo__bag_lookup *lookup, neo_dtype dtype,
                                                NEO__VF *s, int count, int64_t k, int64_t k_end,
                                                int64_t col, int64_t ahead, int fetches) {
    const neo__bag_rows *rows = lookup->store;
    const int is_i32 = NEO__I32_IDS(lookup), size = dtype == NEO_I8 ? 1 : 2;
    const float *weights = lookup->weights;
    const int64_t row_bytes = rows->row_bytes;
    const char *data = rows->data + col * size;
    NEO__VF scale = NEO__SET(0.0f), bias = scale;
    for (; k < k_end; k++) {
        const int64_t id = neo__jagged_id(lookup->ids, is_i32, k);
        const char *row = data + id * row_bytes;
        NEO__VF w = NEO__SET(weights ? weights[k] : 1.0f);
        if (fetches) {
            const int64_t next_id = neo__jagged_id(lookup->ids, is_i32, k + ahead);
            const char *next = data + next_id * row_bytes;
            NEO__EACH(i, count)
            if (i * NEO__W * size % 64 == 0) NEO__FETCH(next + i * NEO__W * size);
            if (dtype == NEO_I8 && col == 0) NEO__FETCH(rows->scale + 2 * next_id);
        }
        if (dtype == NEO_I8)
            scale = NEO__SET(rows->scale[2 * id]), bias = NEO__SET(rows->scale[2 * id + 1]);
        NEO__EACH(i, count)
        s[i] = NEO__FMA(w, NEO__FN(row_load)(dtype, row + i * NEO__W * size, scale, bias), s[i]);
    }
}
/* Narrow rows: bags [b, b_end), `count` vectors of columns from col on. */
NEO__KERNEL_INLINE void NEO__FN(bag_bags_narrow)(const neo__bag_lookup *lookup, int64_t b,
                                                 int64_t b_end, int64_t col, int count) {
    const neo_dtype dtype = lookup->store->dtype;
    const int64_t ahead = lookup->ahead,
                  near_end = lookup->offsets[lookup->bags] - ahead;
    float *to = lookup->out + b * lookup->out_stride + col;
    for (; b < b_end; b++, to += lookup->out_stride) {
        int64_t k = lookup->offsets[b], k_end = lookup->offsets[b + 1];
        const int fetches = k_end <= near_end;
        NEO__VF s[8];
        NEO__EACH(i, count) s[i] = NEO__SET(0.0f);
        if (!fetches && col == 0)
            NEO__FN(bag_fetch_ahead)(lookup, NEO__I32_IDS(lookup), k + ahead, k_end + ahead);
        if (dtype == NEO_F16)
            NEO__FN(bag_sum_narrow)(lookup, NEO_F16, s, count, k, k_end, col, ahead, fetches);
        else if (dtype == NEO_BF16)
            NEO__FN(bag_sum_narrow)(lookup, NEO_BF16, s, count, k, k_end, col, ahead, fetches);
        else NEO__FN(bag_sum_narrow)(lookup, NEO_I8, s, count, k, k_end, col, ahead, fetches);
        NEO__FN(bag_store)(to, s, count, lookup->mean, k_end - k);
    }
}
#define NEO__BAG_NARROW(N)                                                                         \
    NEO__KERNEL_FAR void NEO__FN(bag_narrow_##N)(const neo__bag_lookup *a, int64_t b,              \
                                                 int64_t b_end, int64_t col) {                     \
        NEO__FN(bag_bags_narrow)(a, b, b_end, col, N);                                             \
    }
NEO__BAG_NARROW(8)
NEO__BAG_NARROW(4)
NEO__BAG_NARROW(2)
NEO__BAG_NARROW(1)
#undef NEO__BAG_NARROW
#if NEO__PASS == NEO__PASS_AVX512
/* Rows of 128 columns of 16 bits, which are four lines: those of some bags have two passes, unless
   they are very short or one is long, which popular rows make slower. */
NEO__KERNEL_FAR void NEO__FN(bag_narrow_halves)(const neo__bag_lookup *lookup) {
    const int64_t *offsets = lookup->offsets;
    for (int64_t b = 0, end; b < lookup->bags; b = end) {
        for (end = b + 1; end < lookup->bags; end++)
            if (offsets[end + 1] - offsets[b] > NEO__POOL_HALVES) break;
        const int64_t ids = offsets[end] - offsets[b];
        if (ids < 8 * (end - b) || ids > NEO__POOL_HALVES) {
            NEO__FN(bag_narrow_8)(lookup, b, end, 0);
        } else {
            NEO__FN(bag_narrow_4)(lookup, b, end, 0);
            NEO__FN(bag_narrow_4)(lookup, b, end, 4 * NEO__W);
        }
    }
}
#endif
NEO__KERNEL_FAR void NEO__FN(bag_pool_narrow)(const neo__bag_lookup *lookup) {
#if NEO__PASS == NEO__PASS_AVX512
    if (lookup->dim == 8 * NEO__W && lookup->store->dtype != NEO_I8) {
        NEO__FN(bag_narrow_halves)(lookup);
        return;
    }
#endif
    switch (lookup->dim) {
    case 8 * NEO__W: NEO__FN(bag_narrow_8)(lookup, 0, lookup->bags, 0); return;
    case 4 * NEO__W: NEO__FN(bag_narrow_4)(lookup, 0, lookup->bags, 0); return;
    case 2 * NEO__W: NEO__FN(bag_narrow_2)(lookup, 0, lookup->bags, 0); return;
    case NEO__W: NEO__FN(bag_narrow_1)(lookup, 0, lookup->bags, 0); return;
    default: break;
    }
    enum { SOME = 32 }; /* bags, whose rows stay near from one pass to the next */
    for (int64_t b = 0, end; b < lookup->bags; b = end) {
        int64_t col = 0;
        for (end = b; end < NEO__MIN(b + SOME, lookup->bags); end++) {
            for (col = 0; col + 8 * NEO__W <= lookup->dim; col += 8 * NEO__W)
                NEO__FN(bag_narrow_8)(lookup, end, end + 1, col);
            for (; col + 2 * NEO__W <= lookup->dim; col += 2 * NEO__W)
                NEO__FN(bag_narrow_2)(lookup, end, end + 1, col);
            for (; col + NEO__W <= lookup->dim; col += NEO__W)
                NEO__FN(bag_narrow_1)(lookup, end, end + 1, col);
        }
        if (col < lookup->dim) NEO__FN(bag_any_from)(lookup, b, end, col);
    }
}
#else
NEO__KERNEL void NEO__FN(bag_pool_narrow)(const neo__bag_lookup *a) {
    NEO__FN(bag_pool_any)(a);
}
#endif

NEO__KERNEL void NEO__FN(bag_pool)(const neo__bag_lookup *lookup) {
    int64_t dim = lookup->dim;
    if (!lookup->table) {
        NEO__FN(bag_pool_narrow)(lookup);
        return;
    }
    if (dim == 1) {
        NEO__FN(bag_ones)(lookup);
        return;
    }
#if NEO__PASS == NEO__PASS_AVX512
    /* A part of a vector is read with the line that the rest of it would be in; and whole ones come
       from memory in 0.75 of the time as two halves (Zen 4). */
    if (dim <= NEO__W) {
        NEO__FN8(bag_pool)(lookup);
        return;
    }
#endif
#if NEO__PASS != NEO__PASS_SCALAR
#if !defined(NEO_INFERENCE)
    switch (dim) {
    case 8 * NEO__W: NEO__FN(bag_rows_8)(lookup); return;
    case 4 * NEO__W: NEO__FN(bag_rows_4)(lookup); return;
    case 2 * NEO__W: NEO__FN(bag_rows_2)(lookup); return;
#if NEO__PASS != NEO__PASS_AVX512
    case NEO__W: NEO__FN(bag_rows_1)(lookup); return;
#endif
    default: break;
    }
#endif
    if (dim < NEO__W) {
        NEO__FN(bag_chunk_rest)(lookup, 0, lookup->bags, 0);
        return;
    }
#endif
    for (int64_t b = 0; b < lookup->bags; b++) {
        int64_t col = 0;
#if NEO__TRAINS || NEO__PASS != NEO__PASS_SCALAR
        for (; col + 8 * NEO__W <= dim; col += 8 * NEO__W) NEO__FN(bag_chunk_8)(lookup, b, col);
#endif
#if NEO__TRAINS
        if (col + 4 * NEO__W <= dim) NEO__FN(bag_chunk_4)(lookup, b, col), col += 4 * NEO__W;
#endif
        for (; col + 2 * NEO__W <= dim; col += 2 * NEO__W) NEO__FN(bag_chunk_2)(lookup, b, col);
        if (col + NEO__W <= dim) NEO__FN(bag_chunk_1)(lookup, b, col), col += NEO__W;
        if (col < dim) NEO__FN(bag_chunk_rest)(lookup, b, b + 1, col);
    }
}

#if NEO__TRAINS
/* ---- NEO_POOL_NONE, gradients of per-id weights, packing of gradients ---- */
#if NEO__PASS != NEO__PASS_AVX512
NEO__KERNEL void NEO__FN(bag_copy)(const neo__bag_lookup *lookup) {
    int64_t n = lookup->dim, ahead = lookup->ahead, end = lookup->offsets[lookup->bags];
    float *to = lookup->out;
    for (int64_t k = lookup->offsets[0]; k < end; k++, to += lookup->out_stride) {
        int64_t id = k + ahead < end ? neo__jagged_id(lookup->ids, lookup->is_i32, k + ahead) : -1;
        if (id >= 0 && id < lookup->rows) NEO__FN(bag_fetch_id)(lookup->store, id);
        id = NEO__FN(bag_clamp)(lookup, neo__jagged_id(lookup->ids, lookup->is_i32, k));
        const float *row = id < 0 ? to : NEO__FN(bag_row)(lookup, id, 0, n, to);
        NEO__VF w = NEO__SET(lookup->weights ? lookup->weights[k] : 1.0f);
        for (int64_t c = 0; c < n; c += NEO__W) {
            NEO__VF x = id < 0 ? NEO__SET(0.0f) : NEO__LDC(row);
            NEO__STC(to, id >= 0 && lookup->weights ? w * x : x);
        }
    }
}
#endif
#endif
#endif

#if NEO__TRAINS
/* sum + the sum of x[i] y[i]: products rounded, blocks of 16 by the fixed tree, blocks in order. */
NEO__KERNEL_INLINE float NEO__FN(row_dot_on)(float sum, const float *x, const float *y, int64_t n) {
    float q[16];
    for (; n >= 16; x += 16, y += 16, n -= 16) {
        for (int i = 0; i < 16; i += NEO__W) NEO__STORE(q + i, NEO__LOAD(x + i) * NEO__LOAD(y + i));
        sum = NEO__ADD1(sum, NEO__TREE16(q));
    }
    if (n > 0) {
        for (int i = 0; i < 16; i += NEO__W)
            NEO__STORE(q + i,
                       i < n ? NEO__FN(load_left)(x + i, n - i) * NEO__FN(load_left)(y + i, n - i)
                             : NEO__SET(0.0f));
        sum = NEO__ADD1(sum, NEO__TREE16(q));
    }
    return sum;
}

#if NEO__PASS == NEO__PASS_AVX2
/* out[r] = the sum of squares of row r of n columns, a multiple of 16, as row_dot_in, of 8 rows at
   a time: their trees share the additions. */
NEO__KERNEL void NEO__FN(row_squares)(const float *x, int64_t n, int64_t rows, float *out) {
    for (int64_t r = 0; r < rows; r += 8, x += 8 * n) {
        NEO__VF sum = NEO__SET(0.0f);
        for (int64_t c = 0; c < n; c += 16) {
            NEO__VF v[8];
            NEO__EACH(i, 8) {
                NEO__VF a = NEO__LOAD(x + i * n + c), b = NEO__LOAD(x + i * n + c + 8);
                v[i] = a * a + b * b;
            }
            NEO__EACH(i, 4)
                v[i] = (NEO__VF)_mm256_permute2f128_ps((__m256)v[i], (__m256)v[i + 4], 0x20) +
                       (NEO__VF)_mm256_permute2f128_ps((__m256)v[i], (__m256)v[i + 4], 0x31);
            NEO__EACH(i, 2)
                v[i] = NEO__LOW2(v[2 * i], v[2 * i + 1]) + NEO__HIGH2(v[2 * i], v[2 * i + 1]);
            sum = sum + ((NEO__VF)_mm256_shuffle_ps((__m256)v[0], (__m256)v[1], 0x88) +
                         (NEO__VF)_mm256_shuffle_ps((__m256)v[0], (__m256)v[1], 0xDD));
        }
        NEO__STORE(out + r, sum);
    }
}
#endif
NEO__KERNEL_INLINE float NEO__FN(row_dot_in)(const float *x, const float *y, int64_t n) {
    return NEO__FN(row_dot_on)(0.0f, x, y, n);
}
NEO__KERNEL_FAR float NEO__FN(row_dot)(float sum, const float *x, const float *y, int64_t n) {
    return NEO__FN(row_dot_on)(sum, x, y, n);
}

NEO__KERNEL void NEO__FN(row_blocks)(const float *x, const float *y, int64_t n, float *out) {
    for (; n > 0; x += 16, y += 16, n -= 16)
        *out++ = NEO__FN(row_dot_in)(x, y, NEO__MIN(n, (int64_t)16));
}
/* A sum over a row, the next that its step asks for. */
typedef struct NEO__FN(row_sums) {
    const neo__bag_cut *cut; /* NULL: the row is whole */
    int64_t row;             /* of the cut's */
    int next;
} NEO__FN(row_sums);
NEO__KERNEL_INLINE float NEO__FN(row_sum)(NEO__FN(row_sums) * s, const float *x, const float *y,
                                          int64_t n) {
    const neo__bag_cut *cut = s->cut;
    if (!cut) return NEO__FN(row_dot)(0.0f, x, y, n);
    int i = s->next++;
    if (i < cut->have) return cut->total[i * cut->rows + s->row];
    if (i < cut->have + cut->want)
        NEO__FN(row_blocks)
        (x, y, n, cut->blocks + ((i - cut->have) * cut->rows + s->row) * cut->blocks_per_row);
    return 1.0f;
}
NEO__KERNEL_INLINE float NEO__FN(row_mean)(NEO__FN(row_sums) * s, const float *g, int64_t n) {
    return NEO__DIV1(NEO__FN(row_sum)(s, g, g, n), s->cut ? s->cut->dim : (float)n);
}

#if NEO__PASS != NEO__PASS_WARP
#if NEO__PASS != NEO__PASS_AVX512
/* A row of a lookup . d. */
NEO__KERNEL_FAR float NEO__FN(bag_dot)(const neo__bag_lookup *a, int64_t id, const float *d) {
    enum { WIDTH = 256 };
    float room[WIDTH], sum = 0.0f;
    if (a->table) return NEO__FN(row_dot)(0.0f, d, a->table + id * a->dim, a->dim);
    for (int64_t c = 0; c < a->dim; c += WIDTH) {
        int64_t n = NEO__MIN(a->dim - c, (int64_t)WIDTH);
        NEO__FN(rows_decode)(a->store, id, c, n, room);
        sum = NEO__FN(row_dot)(sum, d + c, room, n);
    }
    return sum;
}
NEO__KERNEL void NEO__FN(bag_weight_grad)(const neo__bag_lookup *lookup, float *dweights) {
    int64_t ahead = lookup->ahead, end = lookup->offsets[lookup->bags],
            first = lookup->offsets[0];
    for (int64_t b = 0; b < lookup->bags; b++) {
        int64_t length = lookup->offsets[b + 1] - lookup->offsets[b];
        for (int64_t k = lookup->offsets[b]; k < lookup->offsets[b + 1]; k++) {
            int64_t id =
                k + ahead < end ? neo__jagged_id(lookup->ids, lookup->is_i32, k + ahead) : -1;
            if (id >= 0 && id < lookup->rows) NEO__FN(bag_fetch_id)(lookup->store, id);
            id = NEO__FN(bag_clamp)(lookup, neo__jagged_id(lookup->ids, lookup->is_i32, k));
            const float *d = lookup->dout + (lookup->pooled ? b : k - first) * lookup->out_stride;
            float sum = id < 0 ? 0.0f : NEO__FN(bag_dot)(lookup, id, d);
            dweights[k - first] = lookup->mean && length > 1 ? sum / (float)length : sum;
        }
    }
}
#endif

NEO__KERNEL void NEO__FN(bag_pack)(float *to, int64_t to_stride, const float *from,
                                   int64_t from_stride, int64_t bags, int64_t n,
                                   const int64_t *offsets) {
    for (int64_t b = 0; b < bags; b++, to += to_stride, from += from_stride) {
        if (b + 16 < bags) NEO__FN(bag_fetch_row)(from + 16 * from_stride, n);
        int64_t length = offsets ? offsets[b + 1] - offsets[b] : 1;
        if (length == 0) continue;
        NEO__VF w = NEO__SET((float)length);
        for (int64_t c = 0; c < n; c += NEO__W) {
            NEO__VF x = NEO__LDC(from);
            NEO__STC(to, length > 1 ? x / w : x);
        }
    }
}
#endif

/* ---- the optimizers: one merged gradient g of one row; >>bag-optim has the arithmetic in words
   ---- */

/* Clip, L2 decay into g, decoupled decay of w. */
NEO__KERNEL_INLINE void NEO__FN(bag_adjust_one)(const neo__bag_step *o, NEO__VF *w, NEO__VF *g) {
    if (o->clip > 0.0f)
        *g = NEO__MIN_(NEO__SET(o->clip), NEO__MAX_(NEO__SET(-o->clip), *g));
    if (o->l2 != 0.0f) *g = NEO__FMA(NEO__SET(o->l2), *w, *g);
    if (o->keep != 1.0f) *w = NEO__SET(o->keep) * *w;
}
NEO__KERNEL_FAR void NEO__FN(bag_adjust)(const neo__bag_step *step, float *w, float *g,
                                              int64_t n) {
    const neo__bag_step o = *step; /* a copy: what is stored does not change it */
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF x = NEO__LDC(g), y = NEO__LDC(w);
        NEO__FN(bag_adjust_one)(&o, &y, &x);
        NEO__STC(g, x);
        if (o.keep != 1.0f) NEO__STC(w, y);
    }
}
/* w -= rate x */
NEO__KERNEL_INLINE void NEO__FN(bag_descend_in)(float rate, const float *x, float *w, int64_t n) {
    NEO__VF r = NEO__SET(rate);
    int64_t c = 0;
    for (; c + NEO__W <= n; c += NEO__W)
        NEO__STORE(w + c, NEO__FNMA(r, NEO__LOAD(x + c), NEO__LOAD(w + c)));
    if (c < n) NEO__STC(w, NEO__FNMA(r, NEO__LDC(x), NEO__LDC(w)));
}
NEO__KERNEL_FAR void NEO__FN(bag_descend)(float rate, const float *x, float *w, int64_t n) {
    NEO__FN(bag_descend_in)(rate, x, w, n);
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(bag_adagrad_one)(const neo__bag_step *o, NEO__VF w, NEO__VF g,
                                                    NEO__VF *m) {
    *m = NEO__FMA(g, g, *m);
    return NEO__FNMA(NEO__SET(o->lr), g / (NEO__SQRT(*m) + NEO__SET(o->eps)), w);
}
NEO__KERNEL_FAR void NEO__FN(bag_adagrad)(const neo__bag_step *step, float *w, const float *g,
                                               float *m, int64_t n) {
    const neo__bag_step o = *step;
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF s = NEO__LDC(m), x = NEO__FN(bag_adagrad_one)(&o, NEO__LDC(w), NEO__LDC(g), &s);
        NEO__STC(m, s);
        NEO__STC(w, x);
    }
}
NEO__KERNEL_FAR void NEO__FN(bag_rowwise_adagrad)(const neo__bag_step *o, NEO__FN(row_sums) * sums,
                                                  float *w, const float *g, float *s, int64_t n) {
    float sum = NEO__ADD1(*s, NEO__FN(row_mean)(sums, g, n));
    NEO__SYNC();
    *s = sum;
    NEO__FN(bag_descend)(NEO__DIV1(o->lr, NEO__ADD1(NEO__SQRT1(sum), o->eps)), g, w, n);
}
/* The bias-corrected direction of Adam. partial: below is given, v is not kept. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(bag_adam_one)(const neo__bag_step *o, NEO__VF g, NEO__VF *m,
                                                 NEO__VF *v, NEO__VF below, int partial) {
    *m = NEO__FMA(NEO__SET(o->beta1), *m, NEO__SET(o->rest1) * g);
    if (!partial) {
        *v = NEO__FMA(NEO__SET(o->beta2), *v, NEO__SET(o->rest2) * g * g);
        below = NEO__SQRT(*v * NEO__SET(o->fix2)) + NEO__SET(o->eps);
    }
    return *m * NEO__SET(o->fix1) / below;
}
/* u = that of a row; v is a row, or one float of the row (partial). */
NEO__KERNEL_FAR void NEO__FN(bag_adam_direction)(const neo__bag_step *step,
                                                 NEO__FN(row_sums) * sums, const float *g, float *m,
                                                 float *v, float *u, int64_t n, int partial) {
    const neo__bag_step o = *step;
    NEO__VF below = NEO__SET(o.eps);
    if (partial) {
        float mean = NEO__MUL1(step->rest2, NEO__FN(row_mean)(sums, g, n));
        float square = NEO__FMA1(step->beta2, *v, mean);
        NEO__SYNC();
        *v = square;
        below = NEO__SET(NEO__ADD1(NEO__SQRT1(NEO__MUL1(square, step->fix2)), step->eps));
    }
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF a = NEO__LDC(m), q = partial ? below : NEO__LDC(v);
        NEO__STC(u, NEO__FN(bag_adam_one)(&o, NEO__LDC(g), &a, &q, below, partial));
        NEO__STC(m, a);
        if (!partial) NEO__STC(v, q);
    }
}
NEO__KERNEL_FAR void NEO__FN(bag_lamb)(const neo__bag_step *o, NEO__FN(row_sums) * sums, float *w,
                                            float *u, int64_t n) {
    NEO__VF decay = NEO__SET(o->decay);
    for (int64_t c = 0; c < n; c += NEO__W) NEO__STC(u, NEO__FMA(decay, NEO__LDC(w), NEO__LDC(u)));
    float w_norm = NEO__SQRT1(NEO__FN(row_sum)(sums, w, w, n));
    float u_norm = NEO__SQRT1(NEO__FN(row_sum)(sums, u, u, n));
    float trust = w_norm > 0.0f && u_norm > 0.0f ? NEO__DIV1(w_norm, u_norm) : 1.0f;
    NEO__FN(bag_descend)(NEO__MUL1(o->lr, trust), u, w, n);
}
NEO__KERNEL_INLINE float NEO__FN(bag_lars_rate)(const neo__bag_step *o, float w_norm,
                                                float g_norm) {
    float below = NEO__FMA1(o->decay, w_norm, g_norm);
    float rate = NEO__MUL1(NEO__MUL1(o->lr, o->eta), w_norm);
    return below > 0.0f ? NEO__DIV1(rate, below) : 0.0f;
}
NEO__KERNEL_INLINE NEO__VF NEO__FN(bag_lars_one)(const neo__bag_step *o, float rate, NEO__VF w,
                                                 NEO__VF g, NEO__VF *m) {
    NEO__VF d = NEO__SET(rate) * NEO__FMA(NEO__SET(o->decay), w, g);
    *m = NEO__FMA(NEO__SET(o->momentum), *m, d);
    return w - *m;
}
NEO__KERNEL_FAR void NEO__FN(bag_lars)(const neo__bag_step *step, NEO__FN(row_sums) * sums,
                                       float *w, const float *g, float *m, int64_t n) {
    const neo__bag_step o = *step;
    float w_norm = NEO__SQRT1(NEO__FN(row_sum)(sums, w, w, n));
    float g_norm = NEO__SQRT1(NEO__FN(row_sum)(sums, g, g, n));
    float rate = NEO__FN(bag_lars_rate)(&o, w_norm, g_norm);
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF d = NEO__LDC(m);
        NEO__STC(w, NEO__FN(bag_lars_one)(&o, rate, NEO__LDC(w), NEO__LDC(g), &d));
        NEO__STC(m, d);
    }
}
NEO__KERNEL_FAR void NEO__FN(bag_ftrl)(const neo__bag_step *o, float *w, const float *g,
                                            float *m, float *v, int64_t n) {
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF squares = NEO__LDC(m), rest = NEO__LDC(v);
        NEO__STC(w, NEO__FN(ftrl)(&o->ftrl, NEO__LDC(g), NEO__LDC(w), &squares, &rest));
        NEO__STC(m, squares);
        NEO__STC(v, rest);
    }
}
NEO__KERNEL_FAR void NEO__FN(bag_cut_norm)(float max_norm, NEO__FN(row_sums) * sums, float *w,
                                                int64_t n) {
    float norm = NEO__SQRT1(NEO__FN(row_sum)(sums, w, w, n));
    if (!(norm > max_norm)) return;
    NEO__VF scale = NEO__SET(NEO__DIV1(max_norm, norm));
    for (int64_t c = 0; c < n; c += NEO__W) NEO__STC(w, scale * NEO__LDC(w));
}

/* One row: its weights w and states m, v by its gradient g. spare: n floats. */
NEO__KERNEL_FAR void NEO__FN(bag_step_row)(const neo__bag_step *step, NEO__FN(row_sums) * sums,
                                           float *w, float *m, float *v, float *g, float *spare,
                                           int64_t n) {
    if (step->adjusts) NEO__FN(bag_adjust)(step, w, g, n);
    switch (step->kind) {
    case NEO_BAG_SGD: NEO__FN(bag_descend)(step->lr, g, w, n); break;
    case NEO_BAG_ADAGRAD: NEO__FN(bag_adagrad)(step, w, g, m, n); break;
    case NEO_BAG_ROWWISE_ADAGRAD: NEO__FN(bag_rowwise_adagrad)(step, sums, w, g, m, n); break;
    case NEO_BAG_ADAM:
    case NEO_BAG_PARTIAL_ADAM:
        NEO__FN(bag_adam_direction)
        (step, sums, g, m, v, spare, n, step->kind == NEO_BAG_PARTIAL_ADAM);
        NEO__FN(bag_descend)(step->lr, spare, w, n);
        break;
    case NEO_BAG_LAMB:
    case NEO_BAG_PARTIAL_LAMB:
        NEO__FN(bag_adam_direction)
        (step, sums, g, m, v, spare, n, step->kind == NEO_BAG_PARTIAL_LAMB);
        NEO__FN(bag_lamb)(step, sums, w, spare, n);
        break;
    case NEO_BAG_LARS_SGD: NEO__FN(bag_lars)(step, sums, w, g, m, n); break;
    case NEO_BAG_FTRL: NEO__FN(bag_ftrl)(step, w, g, m, v, n); break;
    case NEO_BAG_OPTIM_COUNT: break;
    }
    if (step->max_norm > 0.0f) NEO__FN(bag_cut_norm)(step->max_norm, sums, w, n);
}
NEO__KERNEL_INLINE float *NEO__FN(bag_state)(const neo__bag_update *k, int i, int64_t row) {
    return k->state[i] ? k->state[i] + row * k->state_dim[i] : NULL;
}
/* word: the random words by which a narrow row is rounded, or NULL. */
NEO__KERNEL_FAR void NEO__FN(bag_step)(const neo__bag_update *k, int64_t row, float *g,
                                            float *spare, const float *word) {
    NEO__FN(row_sums) sums = {NULL, 0, 0};
    float *w = k->weight ? k->weight + row * k->dim : k->scratch + neo__bag_scratch(k->dim);
    if (!k->weight) NEO__FN(rows_decode)(k->store, row, 0, k->dim, w);
    NEO__FN(bag_step_row)
    (&k->step, &sums, w, NEO__FN(bag_state)(k, 0, row), NEO__FN(bag_state)(k, 1, row), g, spare,
     k->dim);
    NEO__SYNC();
    if (!k->weight) NEO__FN(rows_encode)(k->store, row, w, word);
}
#if NEO__PASS != NEO__PASS_AVX512
/* Rows of a cut table. To ask for sums, the step is taken on a copy of the row. */
NEO__KERNEL void NEO__FN(bag_update_cut)(const neo__bag_update *update, const neo__bag_cut *cut) {
    int64_t n = update->dim;
    float *g = update->scratch, *spare = g + n;
    for (int64_t i = 0; i < update->count; i++) {
        uint64_t low = update->records[i] & (((uint64_t)1 << update->low_bits) - 1);
        int64_t row = (int64_t)(update->records[i] >> update->low_bits);
        float *to[3] = {NULL, NEO__FN(bag_state)(update, 0, row),
                        NEO__FN(bag_state)(update, 1, row)};
        NEO__FN(row_sums) sums = {cut, i, 0};
        to[0] = update->weight ? update->weight + row * n : update->scratch + neo__bag_scratch(n);
        if (!update->weight) NEO__FN(rows_decode)(update->store, row, 0, n, to[0]);
        for (int j = update->weight ? 0 : 1; j < 3 && cut->want; j++) {
            int64_t floats = j == 0 ? n : update->state_dim[j - 1];
            float *copy = update->scratch + (2 + j) * n;
            if (!to[j]) continue;
            memcpy(copy, to[j], (size_t)floats * sizeof *copy);
            to[j] = copy;
        }
        memcpy(g, update->grad + update->grad_row[low], (size_t)n * sizeof *g);
        NEO__FN(bag_step_row)(&update->step, &sums, to[0], to[1], to[2], g, spare, n);
        if (update->weight || cut->want) continue;
        float *word = update->round ? to[0] + neo__bag_room(n) : NULL;
        if (word) NEO__FN(rows_words)(update->store, &row, 1, update->round, word);
        NEO__FN(rows_encode)(update->store, row, to[0], word);
    }
}
#endif
#endif

#if NEO__PASS != NEO__PASS_WARP
#if NEO__TRAINS
/* ---- merging ---- */

/* The gradient row and weight of record i. */
NEO__KERNEL_INLINE const float *NEO__FN(bag_grad)(const neo__bag_update *u, int64_t i,
                                                  float *weight) {
    uint64_t low = u->records[i] & (((uint64_t)1 << u->low_bits) - 1);
    *weight = u->grad_weight ? u->grad_weight[low] : 1.0f;
    return u->grad + (u->grad_row ? u->grad_row[low] : (int64_t)low) * u->grad_stride;
}
/* s += the gradient rows of records [i, end). */
NEO__KERNEL_INLINE void NEO__FN(bag_add_records)(NEO__VF *s, int count, const float *grad,
                                                 int64_t stride, const uint64_t *record,
                                                 uint64_t mask, int64_t i, int64_t end) {
    for (; i < end; i++) {
        const float *row = grad + (int64_t)(record[i] & mask) * stride;
        NEO__EACH(c, count) s[c] = s[c] + NEO__LOAD(row + c * NEO__W);
    }
}
/* to = the sums + 0.0f */
NEO__KERNEL_INLINE void NEO__FN(bag_store_sums)(float *to, const NEO__VF *s, int count) {
    NEO__EACH(c, count) NEO__STORE(to + c * NEO__W, s[c] + 0.0f);
}
/* to = the sum of records [i, end), one row in one leaf, in order, + 0.0f; a chunk of columns. */
NEO__KERNEL_INLINE void NEO__FN(bag_merge)(const neo__bag_update *update, int64_t i, int64_t end,
                                           int64_t col, float *to, int count) {
    NEO__VF s[8];
    NEO__EACH(c, count) s[c] = NEO__SET(0.0f);
    if (!update->grad_row)
        NEO__FN(bag_add_records)(s, count, update->grad + col, update->grad_stride, update->records,
                                 ((uint64_t)1 << update->low_bits) - 1, i, end);
    for (; update->grad_row && i < end; i++) {
        float weight;
        const float *row = NEO__FN(bag_grad)(update, i, &weight) + col;
        NEO__VF w = NEO__SET(weight);
        NEO__EACH(c, count) s[c] = NEO__FMA(w, NEO__LOAD(row + c * NEO__W), s[c]);
    }
    NEO__FN(bag_store_sums)(to, s, count);
}
/* The same for `rows` rows of `count` vectors: row r is records [first[r], first[r + 1]). Each
   record is added to 0 or to the sum before it, and what that gives is stored where its row's sum
   is due: no branch depends on where a run ends, which is hard to predict. */
NEO__KERNEL_INLINE void NEO__FN(bag_merge_rows)(const neo__bag_update *update, const int64_t *first,
                                                int64_t rows, float *to, int count) {
    const uint64_t *record = update->records, mask = ((uint64_t)1 << update->low_bits) - 1;
    const int low_bits = update->low_bits;
    const float *grad = update->grad;
    const int64_t stride = update->grad_stride;
    uint64_t last = record[first[0]] >> low_bits;
    NEO__VF s[8];
    NEO__EACH(c, count) s[c] = NEO__SET(0.0f);
    for (int64_t i = first[0]; i < first[rows]; i++) {
        const uint64_t same = (uint64_t)0 - (uint64_t)(record[i] >> low_bits == last);
        const float *row = grad + (int64_t)(record[i] & mask) * stride;
        NEO__VI keep = NEO__SETI(same);
        to += ~same & (uint64_t)(count * NEO__W);
        last = record[i] >> low_bits;
        NEO__EACH(c, count) {
            s[c] = NEO__AS_F(NEO__AS_I(s[c]) & keep) + NEO__LOAD(row + c * NEO__W);
            NEO__STORE(to + c * NEO__W, s[c]); /* never -0 */
        }
    }
}
#define NEO__BAG_MERGE(N)                                                                          \
    NEO__KERNEL_FAR void NEO__FN(bag_merge_##N)(const neo__bag_update *u, int64_t i, int64_t end,  \
                                                int64_t col, float *to) {                          \
        NEO__FN(bag_merge)(u, i, end, col, to, N);                                                 \
    }
NEO__BAG_MERGE(8)
NEO__BAG_MERGE(4)
NEO__BAG_MERGE(2)
NEO__BAG_MERGE(1)
NEO__KERNEL_FAR void NEO__FN(bag_merge_rest)(const neo__bag_update *update, int64_t i, int64_t end,
                                                  int64_t col, float *to) {
    NEO__VF s = NEO__SET(0.0f);
    for (; i < end; i++) {
        float weight;
        const float *row = NEO__FN(bag_grad)(update, i, &weight) + col;
        NEO__VF x = NEO__LOADN(row, update->dim - col);
        s = update->grad_weight ? NEO__FMA(NEO__SET(weight), x, s) : s + x;
    }
    s = s + 0.0f;
    NEO__STOREN(to, s, update->dim - col);
}
#if NEO__PASS != NEO__PASS_SCALAR
/* Rows shorter than a vector, as bag_merge_rows_1. */
NEO__KERNEL_FAR void NEO__FN(bag_merge_rows_rest)(const neo__bag_update *update,
                                                  const int64_t *first, int64_t rows, float *to) {
    const uint64_t *record = update->records, mask = ((uint64_t)1 << update->low_bits) - 1;
    const int64_t stride = update->grad_stride, n = update->dim;
    const float *grad = update->grad;
    for (int64_t r = 0; r < rows; r++, to += n) {
        NEO__VF s = NEO__SET(0.0f);
        for (int64_t i = first[r]; i < first[r + 1]; i++)
            s = s + NEO__LOADN(grad + (int64_t)(record[i] & mask) * stride, n);
        NEO__STOREN(to, s + 0.0f, n);
    }
}
#endif
/* Columns [col, col + 8 vectors), or what there is of them. */
NEO__KERNEL_FAR void NEO__FN(bag_merge_8_or_less)(const neo__bag_update *update, int64_t i,
                                                       int64_t end, int64_t col, float *to) {
    int64_t left = update->dim - col;
    if (left >= 8 * NEO__W) {
        NEO__FN(bag_merge_8)(update, i, end, col, to);
        return;
    }
    if (left & (4 * NEO__W)) {
        NEO__FN(bag_merge_4)(update, i, end, col, to);
        col += 4 * NEO__W, to += 4 * NEO__W;
    }
    if (left & (2 * NEO__W)) {
        NEO__FN(bag_merge_2)(update, i, end, col, to);
        col += 2 * NEO__W, to += 2 * NEO__W;
    }
    if (left & NEO__W) {
        NEO__FN(bag_merge_1)(update, i, end, col, to);
        col += NEO__W, to += NEO__W;
    }
    if (col < update->dim) NEO__FN(bag_merge_rest)(update, i, end, col, to);
}

/* All columns from col = 0 on. */
NEO__KERNEL_FAR void NEO__FN(bag_merge_row)(const neo__bag_update *u, int64_t i, int64_t end,
                                            int64_t col, float *to) {
    for (; col < u->dim; col += 8 * NEO__W) NEO__FN(bag_merge_8_or_less)(u, i, end, col, to + col);
}

/* Records [i, end) of one row that lie in several leaves. */
NEO__KERNEL_FAR void NEO__FN(bag_merge_leaves)(const neo__bag_update *update, int64_t i,
                                                    int64_t end, float *g) {
    float sum[NEO__PART_DEPTH * 8 * NEO__W];
    uint64_t mask = ((uint64_t)1 << update->low_bits) - 1;
    for (int64_t col = 0; col < update->dim; col += 8 * NEO__W) {
        neo__part_tree tree;
        tree.sum = sum;
        tree.n = NEO__MIN(update->dim - col, (int64_t)(8 * NEO__W));
        tree.stride = 8 * NEO__W;
        tree.depth = 0;
        int64_t at = i;
        while (at < end) {
            int64_t leaf = neo__leaf_of(update->leaf, update->leaf_count,
                                        (int64_t)(update->records[at] & mask));
            int64_t stop = at + 1;
            while (stop < end && (int64_t)(update->records[stop] & mask) < update->leaf[leaf + 1])
                stop++;
            NEO__FN(bag_merge_8_or_less)(update, at, stop, col, NEO__FN(part_push)(&tree, leaf));
            at = stop;
        }
        while (tree.depth > 1) NEO__FN(part_join)(&tree);
        memcpy(g + col, sum, (size_t)tree.n * sizeof *g);
    }
}

/* Fetch the weights and state of a row into the second-level cache: the first has few lines on
   their way at a time, and the gradients need them. (As if to be read: a fetch to write goes to the
   first.) */
NEO__KERNEL_INLINE void NEO__FN(bag_fetch_state)(const neo__bag_update *u, int64_t row) {
    const char *w = u->store->data + row * u->store->row_bytes;
    for (int64_t c = 0; c < u->store->row_bytes; c += 64) __builtin_prefetch(w + c, 0, 2);
    if (u->store->scale) __builtin_prefetch(u->store->scale + 2 * row, 0, 2);
    for (int k = 0; k < 2 && u->state[k]; k++) {
        const float *m = u->state[k] + row * u->state_dim[k];
        for (int64_t c = 0; c < u->state_dim[k]; c += 16) __builtin_prefetch(m + c, 0, 2);
    }
}

/* The walk over the records. first[begin] ... first[end - 1] are the first records of the next
   rows, first[end] is the record behind them when all are found; records before `scanned` have been
   looked at, of which the last was of row `last`. Weights of rows before `fetched` have been
   fetched, `ahead` rows before their turn (not records: hot rows have long runs), one whenever a
   row is stepped: many at once would wait for each other, and memory then for them. Gradient rows
   before `grads` have been, `ahead` records before theirs. */
enum { NEO__FN(BAG_ROOM) = 512 };
typedef struct NEO__FN(bag_walk) {
    int64_t scanned, begin, end, fetched, grads, ahead;
    uint64_t last;
    int64_t first[NEO__FN(BAG_ROOM)];
} NEO__FN(bag_walk);
/* Fetch the next row's weights, and its state. */
NEO__KERNEL_INLINE void NEO__FN(bag_fetch_next)(const neo__bag_update *u, NEO__FN(bag_walk) * k) {
    if (k->fetched < k->end)
        NEO__FN(bag_fetch_state)(u, (int64_t)(u->records[k->first[k->fetched++]] >> u->low_bits));
}
/* The same of a row of `bytes` with at most one number of state. */
NEO__KERNEL_INLINE void NEO__FN(bag_fetch_plain)(const neo__bag_update *update,
                                                 NEO__FN(bag_walk) * k, int64_t bytes) {
    if (k->fetched >= k->end) return;
    const int64_t row = (int64_t)(update->records[k->first[k->fetched++]] >> update->low_bits);
    const char *w = update->store->data + row * bytes;
    for (int64_t c = 0; c < bytes; c += 64) __builtin_prefetch(w + c, 0, 2);
    if (update->state[0]) __builtin_prefetch(update->state[0] + row, 0, 2);
    if (update->store->scale) __builtin_prefetch(update->store->scale + 2 * row, 0, 2);
}
/* Find rows until `ahead` are behind the next `most`. No branch depends on where rows begin. */
NEO__KERNEL_INLINE void NEO__FN(bag_walk_on)(const neo__bag_update *update,
                                             NEO__FN(bag_walk) * walk, int64_t most) {
    const uint64_t *record = update->records;
    if (walk->begin + walk->ahead + 2 * most >= NEO__FN(BAG_ROOM)) {
        memmove(walk->first, walk->first + walk->begin,
                (size_t)(walk->end - walk->begin + 1) * sizeof *walk->first);
        walk->end -= walk->begin;
        walk->fetched -= walk->begin;
        walk->begin = 0;
    }
    int64_t rows = walk->end, i = walk->scanned, count = update->count,
            want = walk->begin + walk->ahead + 2 * most;
    uint64_t last = walk->last;
    for (const int low = update->low_bits; i < count && rows < want; i++) {
        uint64_t row = record[i] >> low;
        walk->first[rows] = i;
        rows += row != last;
        last = row;
    }
    if (i == count) walk->first[rows] = count;
    walk->end = rows;
    walk->scanned = i;
    walk->last = last;
    while (!update->keep_at && walk->fetched < NEO__MIN(rows, walk->begin + walk->ahead))
        NEO__FN(bag_fetch_next)(update, walk);
}
NEO__KERNEL_FAR void NEO__FN(bag_fetch_grads)(const neo__bag_update *u, NEO__FN(bag_walk) * k,
                                              int64_t end) {
    float weight;
    for (int64_t stop = NEO__MIN(end + k->ahead, u->count); k->grads < stop; k->grads++)
        NEO__FN(bag_fetch_row)(NEO__FN(bag_grad)(u, k->grads, &weight), u->dim);
}
/* Records [at, end) are of one row; whether they lie in one leaf. */
NEO__KERNEL_INLINE int NEO__FN(bag_one_leaf)(const neo__bag_update *u, int64_t at, int64_t end) {
    if (u->leaf_count == 1 || end - at == 1) return 1;
    uint64_t mask = ((uint64_t)1 << u->low_bits) - 1;
    int leaf = neo__leaf_of(u->leaf, u->leaf_count, (int64_t)(u->records[at] & mask));
    return (int64_t)(u->records[end - 1] & mask) < u->leaf[leaf + 1];
}
/* Rows of one column; row r is records [first[r], first[r + 1]), in one leaf. */
NEO__KERNEL_FAR void NEO__FN(bag_merge_ones)(const neo__bag_update *update, const int64_t *first,
                                             int64_t rows, float *to) {
    const uint64_t *record = update->records, mask = ((uint64_t)1 << update->low_bits) - 1;
    const int64_t stride = update->grad_stride;
    for (int64_t r = 0, i = first[0]; r < rows; r++) {
        float s = NEO__ADD1(0.0f, update->grad[(int64_t)(record[i++] & mask) * stride]);
        for (; i < first[r + 1]; i++)
            s = NEO__ADD1(s, update->grad[(int64_t)(record[i] & mask) * stride]);
        to[r] = s; /* not -0 */
    }
}
/* Merge the next `count` rows of the walk into g. */
NEO__KERNEL_INLINE void NEO__FN(bag_merge_group)(const neo__bag_update *update,
                                                 NEO__FN(bag_walk) * walk, int64_t count,
                                                 float *g) {
    const int64_t *first = walk->first + walk->begin;
    if (update->dim == 1 && !update->grad_row && update->leaf_count == 1) {
        if (update->fetch_grads) NEO__FN(bag_fetch_grads)(update, walk, first[count]);
        NEO__FN(bag_merge_ones)(update, first, count, g);
        return;
    }
#if NEO__PASS != NEO__PASS_SCALAR
    if (!update->grad_row && update->leaf_count == 1 && !update->fetch_grads) {
        switch (update->dim) {
        case NEO__W: NEO__FN(bag_merge_rows)(update, first, count, g, 1); return;
        case 2 * NEO__W: NEO__FN(bag_merge_rows)(update, first, count, g, 2); return;
        case 4 * NEO__W: NEO__FN(bag_merge_rows)(update, first, count, g, 4); return;
        case 8 * NEO__W: NEO__FN(bag_merge_rows)(update, first, count, g, 8); return;
        default: break;
        }
        if (update->dim < NEO__W) { NEO__FN(bag_merge_rows_rest)(update, first, count, g); return; }
    }
#endif
    for (int64_t r = 0; r < count; r++, g += update->dim) {
        int64_t at = first[r], end = first[r + 1];
        if (update->fetch_grads) NEO__FN(bag_fetch_grads)(update, walk, end);
        if (NEO__FN(bag_one_leaf)(update, at, end)) NEO__FN(bag_merge_row)(update, at, end, 0, g);
        else NEO__FN(bag_merge_leaves)(update, at, end, g);
    }
}

/* ---- plain steps of a group: w -= rate g, and a rate per row ----
   Sums, then rates, then rows, so that rows overlap. */

/* The rates of row-wise Adagrad (or of plain SGD), and its state. */
NEO__KERNEL_INLINE void NEO__FN(bag_rates)(const neo__bag_update *update, const int64_t *row,
                                           int64_t count, const float *g, int64_t n, float *rate) {
    const neo__bag_step *step = &update->step;
    float mean[NEO__BAG_GROUP], s[NEO__BAG_GROUP];
    if (step->kind == NEO_BAG_SGD) {
        for (int64_t r = 0; r < count; r++) rate[r] = step->lr;
        return;
    }
    int64_t done = 0;
#if NEO__PASS == NEO__PASS_AVX2 || NEO__PASS == NEO__PASS_AVX512
    if (n % 16 == 0) NEO__FN8(row_squares)(g, n, done = count / 8 * 8, mean);
#endif
    for (; done < count; done++) mean[done] = NEO__FN(row_dot_in)(g + done * n, g + done * n, n);
    for (int64_t r = 0; r < count; r++) s[r] = update->state[0][row[r]];
    for (int64_t r = 0; r < count; r += NEO__W) {
        NEO__VF x = NEO__FN(load_left)(mean + r, count - r) / (float)n;
        x = NEO__FN(load_left)(s + r, count - r) + x;
        NEO__FN(store_left)(s + r, x, count - r);
        x = NEO__SQRT(x) + step->eps;
        NEO__FN(store_left)(rate + r, step->lr / x, count - r);
    }
    for (int64_t r = 0; r < count; r++) update->state[0][row[r]] = s[r];
}
#if NEO__PASS != NEO__PASS_SCALAR
/* 16 codes to their place. */
NEO__KERNEL_INLINE void NEO__FN(row_store_16)(neo_dtype dtype, char *to, const NEO__VI *code) {
#if NEO__PASS == NEO__PASS_AVX2
    __m256i h = dtype == NEO_I8 ? _mm256_packs_epi32((__m256i)code[0], (__m256i)code[1])
                                : _mm256_packus_epi32((__m256i)code[0], (__m256i)code[1]);
    h = _mm256_permute4x64_epi64(h, 0xD8);
    if (dtype != NEO_I8) _mm256_storeu_si256((__m256i *)(void *)to, h);
    else
        _mm_storeu_si128((__m128i *)(void *)to, _mm_packs_epi16(_mm256_castsi256_si128(h),
                                                                _mm256_extracti128_si256(h, 1)));
#else
    NEO__EACH(i, 16 / NEO__W) {
        if (dtype == NEO_I8) NEO__STORE_B(to + i * NEO__W, code[i]);
        else NEO__STORE_H(to + 2 * i * NEO__W, code[i]);
    }
#endif
}
/* f16_round's codes to their place, by a conversion that is exact: the random bits meet those that
   f16 drops, 13 and of a denormal more, which are then cleared. Returns 0, and stores nothing, if
   one of x is below f16's least number, or not finite. */
NEO__KERNEL_INLINE int NEO__FN(f16_round_store)(char *to, NEO__VF x, NEO__VI r) {
    NEO__VI u = NEO__AS_I(x), a = u & 0x7FFFFFFFu;
    /* a - 0x33800000 >= 0x4C000000, unsigned: 2^-24 and infinity */
    if (NEO__ANY(NEO__GTI(a + 0x4C800000u, NEO__SETI(0xCBFFFFFFu)))) return 0;
    NEO__VI met = NEO__MINI((a >> 23) - 94u, NEO__SETI(19)); /* 32 - the dropped */
    u = (u + NEO__SRLV(r, met)) & ~NEO__SRLV(NEO__SETI(0xFFFFFFFFu), met);
    NEO__STORE_F16((uint16_t *)(void *)to, NEO__AS_F(u));
    return 1;
}
/* Rows of n columns, a multiple of 16: decoded, stepped and rounded in registers; those of i8 in
   two goes, as their scale comes between. */
NEO__KERNEL_INLINE void NEO__FN(bag_narrow_rows)(const neo__bag_update *update,
                                                 NEO__FN(bag_walk) * walk, neo_dtype dtype,
                                                 const int64_t *row, int64_t count, float *g,
                                                 const float *rate, const float *word) {
    const neo__bag_rows *rows = update->store;
    const int64_t n = rows->dim, size = dtype == NEO_I8 ? 1 : 2;
    float scales[NEO__BAG_GROUP];
    NEO__VI code[16 / NEO__W];
    for (int64_t r = 0; r < count && dtype == NEO_I8; r++) {
        const char *from = rows->data + row[r] * n;
        float *w = g + r * n, *scale = rows->scale + 2 * row[r];
        NEO__VF by = NEO__SET(rate[r]), unit = NEO__SET(scale[0]), bias = NEO__SET(scale[1]);
        for (int64_t c = 0; c < n; c += NEO__W) {
            NEO__VF x = NEO__FN(row_load)(dtype, from + c, unit, bias);
            NEO__STORE(w + c, NEO__FNMA(by, NEO__LOAD(w + c), x));
        }
        scales[r] = NEO__FN(rows_scale)(w, n, scale);
    }
    for (int64_t r = 0; r < count; r++, g += n) {
        char *to = rows->data + row[r] * n * size;
        NEO__FN(bag_fetch_plain)(update, walk, n * size);
        const float *words = word ? word + neo__bag_number(rows, row[r]) % 4 : NULL;
        NEO__VF by = NEO__SET(rate[r]), inverse = NEO__SET(0.0f), bias = inverse;
        if (word) word += 4 * neo__bag_blocks_of(rows, row[r]);
        if (dtype == NEO_I8 && scales[r] == 0.0f) {
            memset(to, 0, (size_t)n);
            continue;
        }
        if (dtype == NEO_I8)
            inverse = NEO__SET(1.0f / scales[r]), bias = NEO__SET(rows->scale[2 * row[r] + 1]);
        for (int64_t c = 0; c < n; c += 16, to += 16 * size) {
            NEO__EACH(i, 16 / NEO__W) {
                const int64_t at = c + i * NEO__W;
                char *here = to + i * NEO__W * size;
                NEO__VF x = NEO__LOAD(g + at);
                if (dtype != NEO_I8)
                    x = NEO__FNMA(by, x, NEO__FN(row_load)(dtype, here, inverse, bias));
                if (dtype == NEO_F16 && words) {
                    NEO__VI random = NEO__AS_I(NEO__LOAD(words + at));
                    if (!NEO__FN(f16_round_store)(here, x, random))
                        NEO__STORE_H(here, NEO__FN(f16_round)(x, random));
                } else if (words || dtype == NEO_I8)
                    code[i] =
                        NEO__FN(row_round)(dtype, x, inverse, bias, words ? words + at : NULL);
                else if (dtype == NEO_BF16) code[i] = NEO__FN(bf16_near)(NEO__AS_I(x));
                else NEO__STORE_F16((uint16_t *)(void *)here, x);
            }
            if (dtype != NEO_F16) NEO__FN(row_store_16)(dtype, to, code);
        }
    }
}
#define NEO__BAG_NARROW(name, dtype, word)                                                         \
    NEO__KERNEL_FAR void NEO__FN(bag_narrow_##name)(                                               \
        const neo__bag_update *u, NEO__FN(bag_walk) * walk, const int64_t *row, int64_t count,     \
        float *g, const float *rate, const float *words) {                                         \
        (void)words;                                                                               \
        NEO__FN(bag_narrow_rows)(u, walk, dtype, row, count, g, rate, word);                       \
    }
NEO__BAG_NARROW(f16, NEO_F16, NULL)
NEO__BAG_NARROW(bf16, NEO_BF16, NULL)
NEO__BAG_NARROW(i8, NEO_I8, NULL)
NEO__BAG_NARROW(f16_random, NEO_F16, words)
NEO__BAG_NARROW(bf16_random, NEO_BF16, words)
NEO__BAG_NARROW(i8_random, NEO_I8, words)
#undef NEO__BAG_NARROW
NEO__KERNEL_INLINE void NEO__FN(bag_narrow_group)(const neo__bag_update *u,
                                                  NEO__FN(bag_walk) * k, const int64_t *row,
                                                  int64_t count, float *g, const float *rate,
                                                  const float *word) {
    const neo_dtype dtype = u->store->dtype;
    if (dtype == NEO_F16 && word) NEO__FN(bag_narrow_f16_random)(u, k, row, count, g, rate, word);
    else if (dtype == NEO_F16) NEO__FN(bag_narrow_f16)(u, k, row, count, g, rate, word);
    else if (dtype == NEO_BF16 && word)
        NEO__FN(bag_narrow_bf16_random)(u, k, row, count, g, rate, word);
    else if (dtype == NEO_BF16) NEO__FN(bag_narrow_bf16)(u, k, row, count, g, rate, word);
    else if (word) NEO__FN(bag_narrow_i8_random)(u, k, row, count, g, rate, word);
    else NEO__FN(bag_narrow_i8)(u, k, row, count, g, rate, word);
}
#endif
/* Rows of f32; or narrow ones of 16, 32, ... columns. */
NEO__KERNEL_INLINE void NEO__FN(bag_plain_group)(const neo__bag_update *update,
                                                 NEO__FN(bag_walk) * walk, const int64_t *row,
                                                 int64_t count, float *g, int64_t n,
                                                 const float *word) {
    float rate[NEO__BAG_GROUP];
    NEO__FN(bag_rates)(update, row, count, g, n, rate);
#if NEO__PASS != NEO__PASS_SCALAR
    if (!update->weight) {
        NEO__FN(bag_narrow_group)(update, walk, row, count, g, rate, word);
        return;
    }
#endif
    (void)word;
    for (int64_t r = 0; r < count; r++) {
        NEO__FN(bag_fetch_plain)(update, walk, 4 * n);
        NEO__FN(bag_descend_in)(rate[r], g + r * n, update->weight + row[r] * n, n);
    }
}
/* Rows of one column by an optimizer that steps each number alone: side by side, as one row. */
NEO__KERNEL_FAR void NEO__FN(bag_step_ones)(const neo__bag_update *update, const int64_t *row,
                                            int64_t count, float *g) {
    float part[3][NEO__BAG_GROUP], spare[NEO__BAG_GROUP];
    float *all[3] = {update->weight, update->state[0], update->state[1]};
    for (int i = 0; i < 3 && all[i]; i++)
        for (int64_t r = 0; r < count; r++) part[i][r] = all[i][row[r]];
    NEO__FN(bag_step_row)(&update->step, NULL, part[0], part[1], part[2], g, spare, count);
    for (int i = 0; i < 3 && all[i]; i++)
        for (int64_t r = 0; r < count; r++) all[i][row[r]] = part[i][r];
}
NEO__KERNEL_FAR void NEO__FN(bag_step_group)(const neo__bag_update *update,
                                             NEO__FN(bag_walk) * walk, const int64_t *row,
                                             int64_t count, float *g) {
    const neo__bag_step *o = &update->step;
    int plain = (o->kind == NEO_BAG_ROWWISE_ADAGRAD || o->kind == NEO_BAG_SGD) && !o->adjusts &&
                !(o->max_norm > 0.0f);
    float *spare = update->scratch + neo__bag_group(update->dim) * update->dim;
    float *word = NULL;
    if (update->dim == 1 && update->weight && !(o->max_norm > 0.0f) &&
        (o->kind == NEO_BAG_ADAGRAD || o->kind == NEO_BAG_ADAM || o->kind == NEO_BAG_FTRL)) {
        for (int64_t r = 0; r < count; r++) NEO__FN(bag_fetch_next)(update, walk);
        NEO__FN(bag_step_ones)(update, row, count, g);
        return;
    }
    if (!update->weight && update->round) {
        word = update->scratch + neo__bag_scratch(update->dim) + neo__bag_room(update->dim);
        NEO__FN(rows_words)(update->store, row, count, update->round, word);
    }
#if NEO__PASS == NEO__PASS_SCALAR
    if (plain && update->weight) {
#else
    if (plain && (update->weight || update->dim % 16 == 0)) {
#endif
        switch (NEO__W > 1 ? update->dim : 0) { /* short rows gain from a known length */
        case 16: NEO__FN(bag_plain_group)(update, walk, row, count, g, 16, word); return;
        case 64: NEO__FN(bag_plain_group)(update, walk, row, count, g, 64, word); return;
        default: NEO__FN(bag_plain_group)(update, walk, row, count, g, update->dim, word); return;
        }
    }
    for (int64_t r = 0; r < count; r++) {
        NEO__FN(bag_fetch_next)(update, walk);
        NEO__FN(bag_step)(update, row[r], g + r * update->dim, spare, word);
        if (word) word += 4 * neo__bag_blocks_of(update->store, row[r]);
    }
}
NEO__KERNEL_FAR void NEO__FN(bag_keep_group)(const neo__bag_update *u, const int64_t *first,
                                                  int64_t count, const float *g) {
    for (int64_t r = 0; r < count; r++, g += u->dim) {
        int64_t at = u->keep_at[first[r]];
        float *to = u->keep_to + (at >> 1);
        for (int64_t c = 0; c < u->dim; c++) to[c] = at & 1 ? g[c] : to[c] + g[c];
    }
}
/* Fetch the rows of the next group from the second-level cache into the first while their gradients
   are merged. Rows of a line are loaded in time without it, and long ones would wait for it. */
NEO__KERNEL_INLINE void NEO__FN(bag_fetch_near)(const neo__bag_update *u, const int64_t *row,
                                                int64_t count) {
    const int64_t bytes = u->store->row_bytes;
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < bytes; c += 64)
            __builtin_prefetch(u->store->data + row[r] * bytes + c);
}
NEO__KERNEL void NEO__FN(bag_update)(const neo__bag_update *update) {
#if NEO__PASS == NEO__PASS_AVX512
    if (update->dim ==
        8) { /* a part of a vector that is stored and soon loaded waits for the store */
        NEO__FN8(bag_update)(update);
        return;
    }
#endif
    int64_t row[NEO__BAG_GROUP], most = neo__bag_group(update->dim);
    const int fetches =
        !update->keep_at && update->store->row_bytes > 64 && update->store->row_bytes <= 128;
    NEO__FN(bag_walk) walk;
    walk.scanned = walk.begin = walk.end = walk.fetched = walk.grads = 0;
    walk.last = ~(uint64_t)0;
    walk.ahead = update->dim <= 64 ? 96 : update->dim <= 128 ? 48 : 16;
    for (;;) {
        NEO__FN(bag_walk_on)(update, &walk, most);
        const int64_t count = NEO__MIN(walk.end - walk.begin, most),
                      *first = walk.first + walk.begin;
        if (count == 0) return;
        for (int64_t r = 0; r < count; r++)
            row[r] = (int64_t)(update->records[first[r]] >> update->low_bits);
        if (fetches) NEO__FN(bag_fetch_near)(update, row, count);
        NEO__FN(bag_merge_group)(update, &walk, count, update->scratch);
        if (update->keep_at) NEO__FN(bag_keep_group)(update, first, count, update->scratch);
        else NEO__FN(bag_step_group)(update, &walk, row, count, update->scratch);
        walk.begin += count;
    }
}
#endif

/* ---- lines of keys (>>lines of neo.h) ----

   By stages a block apart, as each asks for the memory of the next: a set's tags; the key of the
   first line that has the tag; the answer. Which keys need another look is hard to predict: they
   are noted without a branch, and looked for once more block by block. More is on its way to the
   second cache at a time than to the first. */
#if NEO__PASS == NEO__PASS_SCALAR
NEO__SPARE_END /* programs that only predict have no other: it is called by name */
#endif

/* The first line of each key's set, and its tag. Set 0 stands for one of another part. */
NEO__KERNEL_INLINE void NEO__FN(lines_sets)(const neo__lines *map, const uint64_t *keys, int64_t n,
                                            uint8_t *tag, int64_t *to) {
#if NEO__PASS == NEO__PASS_AVX512
    const __m512i sets = _mm512_set1_epi64(map->sets), all = _mm512_set1_epi64(map->all_sets);
    const __m512i first = _mm512_set1_epi64(map->first_set);
    for (int64_t i = 0; i < n; i += 8) {
        const __mmask8 some = (__mmask8)(n - i < 8 ? (1 << (n - i)) - 1 : 255);
        __m512i h = _mm512_maskz_loadu_epi64(some, keys + i);
        h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 33)); /* neo__mix64 */
        h = _mm512_mullo_epi64(h, _mm512_set1_epi64((int64_t)0xFF51AFD7ED558CCDu));
        h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 33));
        h = _mm512_mullo_epi64(h, _mm512_set1_epi64((int64_t)0xC4CEB9FE1A85EC53u));
        h = _mm512_xor_si512(h, _mm512_srli_epi64(h, 33));
        _mm_storel_epi64((__m128i *)(void *)(tag + i),
                         _mm_max_epu8(_mm512_cvtepi64_epi8(h), _mm_set1_epi8(1)));
        h = _mm512_srli_epi64(_mm512_mul_epu32(_mm512_srli_epi64(h, 32), all), 32);
        h = _mm512_sub_epi64(h, first);
        h = _mm512_maskz_slli_epi64(_mm512_cmplt_epu64_mask(h, sets), h, 5);
        _mm512_mask_storeu_epi64(to + i, some, h);
    }
#else
    for (int64_t i = 0; i < n; i++) {
        const uint64_t hash = neo__mix64(keys[i]);
        const int64_t set = neo__lines_set(hash, map->all_sets) - map->first_set;
        tag[i] = neo__lines_tag(hash);
        to[i] = (uint64_t)set < (uint64_t)map->sets ? set * NEO__LINE_WAYS : 0;
    }
#endif
}
NEO__KERNEL_INLINE uint32_t NEO__FN(lines_match)(const neo__lines *map, int64_t first,
                                                  uint8_t tag) {
#if NEO__PASS == NEO__PASS_AVX2 || NEO__PASS == NEO__PASS_AVX512
    const __m256i tags = _mm256_loadu_si256((const __m256i *)(const void *)(map->tag + first)),
                  same = _mm256_cmpeq_epi8(tags, _mm256_set1_epi8((char)tag));
    return (uint32_t)_mm256_movemask_epi8(same);
#else
    return neo__lines_match(map, first / NEO__LINE_WAYS, tag);
#endif
}
/* Note in `again` which lines may not have their keys: those of others, key 0, or old. Returns how
   many; missing: grows by how many keys have none (-1). */
NEO__KERNEL_INLINE int64_t NEO__FN(lines_doubt)(const neo__lines *map, const uint64_t *keys,
                                                int64_t i, int64_t end, const int64_t *line,
                                                int64_t *again, int64_t *missing) {
    const int ages = map->evict == NEO_EVICT_AGE;
    int64_t doubts = 0; /* no branch depends on them */
#if NEO__PASS == NEO__PASS_AVX512
    const uint64_t *has = map->key; /* read one by one: some machines' gathers are slow */
    const __m512i eight = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    int64_t at[8];
    for (; i < end; i += 8) {
        const __mmask8 some = (__mmask8)(end - i < 8 ? (1 << (end - i)) - 1 : 255);
        const __m512i lines = _mm512_maskz_loadu_epi64(some, line + i);
        const __m512i wanted = _mm512_maskz_loadu_epi64(some, keys + i);
        const __mmask8 none = _mm512_movepi64_mask(lines);
        _mm512_storeu_si512(at, _mm512_maskz_mov_epi64((__mmask8)~none, lines));
        const __m512i there = _mm512_set_epi64(
            (int64_t)has[at[7]], (int64_t)has[at[6]], (int64_t)has[at[5]], (int64_t)has[at[4]],
            (int64_t)has[at[3]], (int64_t)has[at[2]], (int64_t)has[at[1]], (int64_t)has[at[0]]);
        const int differ = ages ? 255 : _mm512_cmpneq_epi64_mask(there, wanted) |
                                            _mm512_testn_epi64_mask(wanted, wanted);
        const __mmask8 doubt = (__mmask8)(differ & some & ~none);
        const __m512i number = _mm512_add_epi64(_mm512_set1_epi64(i), eight);
        _mm512_storeu_si512(again + doubts, _mm512_maskz_compress_epi64(doubt, number));
        doubts += __builtin_popcount(doubt);
        *missing += __builtin_popcount(none);
    }
#else
    for (; i < end; i++) {
        const uint64_t differs = map->key[NEO__MAX(line[i], (int64_t)0)] ^ keys[i];
        const uint64_t some = ~(uint64_t)(line[i] >> 63);
        again[doubts] = i;
        doubts += ((differs | (uint64_t)(keys[i] == 0) | (uint64_t)ages) & some) != 0;
        *missing += some == 0;
    }
#endif
    return doubts;
}
NEO__UNUSED NEO__KERNEL_FAR int64_t NEO__FN(lines_find)(const neo__lines *lines,
                                                        const uint64_t *keys, int64_t count,
                                                        int64_t now, int touches, int64_t *to) {
    enum { BLOCK = 128 }; /* a multiple of 8 */
    const neo__lines map = *lines; /* which no store changes */
    uint8_t tag[BLOCK];
    int64_t again[BLOCK + 8], missing = 0;
    for (int64_t at = 0; at < count + 2 * BLOCK; at += BLOCK) {
        const int64_t doubts = NEO__FN(lines_doubt)(
            &map, keys, NEO__MAX(at - 2 * BLOCK, (int64_t)0), NEO__MIN(at - BLOCK, count), to,
            again, &missing);
        for (int64_t i = 0; i < doubts; i++) {
            const uint64_t key = keys[again[i]];
            const int64_t line = neo__lines_find(lines, key, neo__mix64(key), now);
            to[again[i]] = line;
            missing += line < 0;
        }
        int64_t *has = to + (at ? at - BLOCK : 0), n = NEO__MIN((int64_t)BLOCK, count + BLOCK - at);
        for (int64_t i = 0; at && i < n; i++) {
            const uint32_t bits = NEO__FN(lines_match)(&map, has[i], tag[i]);
            const int64_t line = has[i] + __builtin_ctz(bits | 1u << 31);
            __builtin_prefetch(map.key + line, 0, 2);
            if (touches) __builtin_prefetch(map.use + line, 1, 2);
            has[i] = line | -(int64_t)(bits == 0);
        }
        if (at >= count) continue;
        n = NEO__MIN((int64_t)BLOCK, count - at);
        NEO__FN(lines_sets)(&map, keys + at, n, tag, to + at);
        for (int64_t i = at; i < at + n; i++) __builtin_prefetch(map.tag + to[i], 0, 2);
    }
    return missing;
}
#if NEO__PASS == NEO__PASS_SCALAR
NEO__SPARE_BEGIN
#endif

static const neo__bag_kernels NEO__FN(bag_kernels) = {
    NEO__FN(bag_pool), NEO__FN(bag_pool_any), NEO__TRAIN(NEO__FN8(bag_copy)),
    NEO__TRAIN(NEO__FN8(bag_weight_grad)), NEO__TRAIN(NEO__FN(bag_pack)),
    NEO__TRAIN(NEO__FN(bag_update)), NEO__TRAIN(NEO__FN8(bag_update_cut)),
    NEO__TRAIN(NEO__FN(row_blocks)), NEO__TRAIN(NEO__FN(rows_decode)),
    NEO__TRAIN(NEO__FN(rows_encode)), NEO__TRAIN(NEO__FN(lines_find)),
};
#endif

/* ---- >>kernels-wire ----
   Rows coded for a narrow wire. f32, f16, bf16: the numbers in order, zeros up to a multiple of 4
   bytes. The others: block after block; a block is its scale (f32) and then 32-bit words that hold
   p codes each (4 of 8 bits, or 8 of 4 bits). A block of n numbers has w = ceil(n/p) words; word i
   holds the numbers i, i + w, i + 2w ... (one of each plane of w numbers), the first in its lowest
   bits; codes past the end are 0. So a word is made of numbers that lie w apart, by 32-bit shifts
   alone. Rows of whole blocks have no padding: without gaps they are coded as one long row.

   i8, i4: two's complement codes. With Q = 127 or 7 and m the block's largest magnitude,
       scale   = m/Q in f32, rounded to 17 significant bits, at least 2^-126
       code    = x (1/scale), two f32 operations, to the nearest integer, ties to even
       decoded = code scale, which is exact (7 + 17 bits)
   m itself has the code Q and decoding never overflows; what was decoded codes to the same bytes.
   Adding 1.5 2^23 rounds: the lowest bits of the sum are the code. -0 decodes as +0.

   f8: the scale is a power of two, at least 2^-126. x/scale and code scale are exact (but for
   quotients far below the smallest code), so each number is rounded once. Zeros keep their signs.

   A block that would decode as zeros has the scale 0; one with an Inf or a NaN has the scale NaN
   and codes 0. Before all this x is multiplied by `factor`, in the end what was decoded by `back`,
   in f32. The bytes depend on the values alone (f32, f16, bf16 keep NaNs' payloads), everywhere.

   `wire` is a constant where the processor's loops call these functions. */
#if NEO__TRAINS && NEO__PASS != NEO__PASS_AVX512
NEO__KERNEL_INLINE int NEO__FN(wire_bits)(int wire) { return wire == NEO_WIRE_I4 ? 4 : 8; }
NEO__KERNEL_INLINE int NEO__FN(wire_is_integer)(int wire) { return wire >= NEO_WIRE_I8; }
/* f8: the bits of the smallest normal number; bits of an f32's significand that it lacks. */
NEO__KERNEL_INLINE uint32_t NEO__FN(wire_normal)(int wire) {
    return (wire == NEO_WIRE_F8E4M3 ? 127u - 6u : 127u - 14u) << 23;
}
NEO__KERNEL_INLINE uint32_t NEO__FN(wire_shift)(int wire) {
    return wire == NEO_WIRE_F8E4M3 ? 20 : 21;
}

#if NEO__PASS == NEO__PASS_AVX2
#define NEO__MAXI(a, b) ((NEO__VI)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#else
#define NEO__MAXI(a, b) NEO__SELECTI(NEO__GTI(a, b), a, b)
#endif
/* A NaN keeps its payload and becomes quiet; a GPU's own arithmetic would replace it. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(wire_times)(NEO__VF x, NEO__VF factor) {
#if NEO__PASS == NEO__PASS_WARP
    if (x != x) return NEO__AS_F(NEO__AS_I(x) | 0x400000);
    if (factor != factor) return NEO__AS_F(NEO__AS_I(factor) | 0x400000);
#endif
    return x * factor;
}
/* x factor. A finite x whose product is beyond the float with the bits `most` gives that,
   signed. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(wire_limit)(NEO__VF x, NEO__VF factor, int32_t most) {
    const NEO__VI u = NEO__AS_I(x), y = NEO__AS_I(NEO__FN(wire_times)(x, factor));
    const NEO__VM finite = NEO__GTI(NEO__SETI(NEO__F32_INFINITY), u & 0x7FFFFFFFu);
    const NEO__VM beyond = NEO__GTI(y & 0x7FFFFFFFu, NEO__SETI(most));
    const NEO__VI limit = (u & 0x80000000u) | (uint32_t)most;
    return NEO__AS_F(NEO__SELECTI(finite & beyond, limit, y));
}
/* The largest of the lanes, which are not negative. */
NEO__KERNEL_INLINE int32_t NEO__FN(wire_top)(NEO__VI v) {
#if NEO__PASS == NEO__PASS_WARP
    for (int step = 8; step > 0; step /= 2) {
        const NEO__VI other = __shfl_xor_sync(NEO__FN(mask)(), v, step, 16);
        v = NEO__MAXI(v, other);
    }
    return (int32_t)v;
#elif NEO__PASS == NEO__PASS_AVX2
    __m128i a = _mm256_castsi256_si128((__m256i)v);
    a = _mm_max_epi32(a, _mm256_extracti128_si256((__m256i)v, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32(a, 0xB1)));
#else
    int32_t lane[NEO__W], top = 0;
    memcpy(lane, &v, sizeof lane);
    for (int i = 0; i < NEO__W; i++) top = lane[i] > top ? lane[i] : top;
    return top;
#endif
}
/* The scale of a block whose largest magnitude has these bits. */
NEO__KERNEL_INLINE float NEO__FN(wire_scale)(int wire, int32_t largest) {
    if (largest >= NEO__F32_INFINITY) return neo__f32_bits(NEO__F32_NAN);
    if (NEO__FN(wire_is_integer)(wire)) {
        if (largest <= 0x00400000) return 0.0f; /* 2^-127: half the smallest scale */
        const float most = wire == NEO_WIRE_I8 ? 127.0f : 7.0f;
        const float scale = NEO__DIV1(neo__f32_bits((uint32_t)largest), most);
        const uint32_t to_17_bits = (neo__bits_f32(scale) + 0x40u) & 0xFFFFFF80u;
        return neo__f32_bits(to_17_bits < 0x00800000u ? 0x00800000u : to_17_bits);
    }
    /* largest/scale = s 2^top with s in [1, 1.75], or s 2^(top - 1) with s in (1.75, 2) */
    const int32_t top = wire == NEO_WIRE_F8E4M3 ? 8 : 15;
    if (largest <= (wire == NEO_WIRE_F8E4M3 ? 0x2000 : 0x40)) return 0.0f; /* 2^-136, 2^-143 */
    const int32_t exponent = (largest + 0x1FFFFF) >> 23;
    return neo__f32_bits((uint32_t)(exponent > top ? exponent - top : 1) << 23);
}
NEO__KERNEL_INLINE float NEO__FN(wire_inverse)(float scale) {
    return scale > 0.0f ? NEO__DIV1(1.0f, scale) : 0.0f;
}
/* f8: adding the power of two whose last place is that of x in the format rounds x to so many last
   places; each exponent above the smallest is worth as many codes more. x is in range. */
NEO__KERNEL_INLINE NEO__VI NEO__FN(wire_code)(int wire, NEO__VF x) {
    if (NEO__FN(wire_is_integer)(wire))
        return NEO__AS_I(x + 12582912.0f) & ((1u << NEO__FN(wire_bits)(wire)) - 1u);
    const uint32_t shift = NEO__FN(wire_shift)(wire);
    const NEO__VI normal = NEO__SETI(NEO__FN(wire_normal)(wire)), u = NEO__AS_I(x);
    const NEO__VI a = u & 0x7FFFFFFFu, power = a & (uint32_t)NEO__F32_INFINITY;
    const NEO__VI exponent = NEO__MAXI(power, normal), place = exponent + (shift << 23);
    const NEO__VI sum = NEO__AS_I(NEO__AS_F(a) + NEO__AS_F(place));
    const NEO__VI codes = (exponent - normal) >> shift, sign = (u ^ a) >> 24;
    return (sum - place + codes) | sign;
}
/* Integers: with its sign bit inverted a code is 2^(bits - 1) more, and becomes a float as the last
   bits of one in [2^23, 2^24). */
NEO__KERNEL_INLINE NEO__VF NEO__FN(wire_value)(int wire, NEO__VI code) {
    if (NEO__FN(wire_is_integer)(wire)) {
        const uint32_t half = 1u << (NEO__FN(wire_bits)(wire) - 1);
        return NEO__AS_F(code ^ (half | 0x4B000000u)) - (float)(8388608u + half);
    }
    const uint32_t shift = NEO__FN(wire_shift)(wire), normal = NEO__FN(wire_normal)(wire);
    const NEO__VI place = NEO__SETI(normal + (shift << 23));
    const NEO__VI a = code & 0x7Fu, sign = (code ^ a) << 24;
    const NEO__VI large = (a << shift) + (normal - (1u << 23));
    const NEO__VI small = NEO__AS_I(NEO__AS_F(a + place) - NEO__AS_F(place));
    const NEO__VM below = NEO__GTI(NEO__SETI(1u << (23 - shift)), a);
    return NEO__AS_F(NEO__SELECTI(below, small, large) | sign);
}

#if NEO__PASS != NEO__PASS_WARP
NEO__KERNEL void NEO__FN(wire_times_all)(float *y, const float *x, int64_t n, float factor,
                                         int32_t most) {
    for (int64_t i = 0; i < n; i += NEO__W) {
        const NEO__VF v = NEO__FN(load_left)(x + i, n - i);
        NEO__FN(store_left)(y + i, NEO__FN(wire_limit)(v, NEO__SET(factor), most), n - i);
    }
}
/* A vector of words of which `left` are there; the first is at p. */
NEO__KERNEL_INLINE NEO__VI NEO__FN(wire_load_words)(const char *p, int64_t left) {
#if NEO__PASS == NEO__PASS_SCALAR
    uint32_t word;
    (void)left;
    memcpy(&word, p, sizeof word);
    return word;
#else
    const void *words = p;
    return left >= NEO__W ? NEO__LOADI((const int32_t *)words)
                          : NEO__AS_I(NEO__LOADN((const float *)words, left));
#endif
}
NEO__KERNEL_INLINE void NEO__FN(wire_store)(void *x, NEO__VF v, int64_t left) {
    if (left >= NEO__W) NEO__STORE((float *)x, v);
    else if (left > 0) NEO__STOREN((float *)x, v, left);
}
/* Number k of n and those behind it; zeros past the end. */
NEO__KERNEL_INLINE NEO__VF NEO__FN(wire_load)(const float *x, int64_t k, int64_t n) {
    if (n - k >= NEO__W) return NEO__LOAD(x + k);
    return k < n ? NEO__LOADP(x + k, NEO__LANES(n - k)) : NEO__SET(0.0f);
}
NEO__KERNEL_INLINE float NEO__FN(wire_block_scale)(int wire, const float *x, int64_t n,
                                                   float factor) {
    NEO__VI most = NEO__SETI(0);
    for (int64_t k = 0; k < n; k += NEO__W) {
        const NEO__VF v = NEO__FN(wire_load)(x, k, n) * factor;
        const NEO__VI a = NEO__AS_I(v) & 0x7FFFFFFFu;
        most = NEO__MAXI(a, most);
    }
    return NEO__FN(wire_scale)(wire, NEO__FN(wire_top)(most));
}
/* f of a block of n numbers; where its planes are whole vectors, as a whole block's, they need no
   care of their ends. */
#define NEO__BY_ENDS(f, wire, n, ...)                                                              \
    (NEO__W > 1 && (n) % (NEO__W * 32 / NEO__FN(wire_bits)(wire)) == 0 ?                           \
        f(wire, 1, n, __VA_ARGS__) : f(wire, 0, n, __VA_ARGS__))
/* The last vector of words goes back over words that are done, unless there is but one. */
NEO__KERNEL_INLINE void NEO__FN(wire_encode_block)(int wire, int even, int64_t n,
                                                   const float *x, float factor, char *out) {
    const int bits = NEO__FN(wire_bits)(wire), planes = 32 / bits;
    if (even && NEO__W * planes == NEO_WIRE_BLOCK) n = NEO_WIRE_BLOCK;
    const int64_t words = (n + planes - 1) / planes, last = words > NEO__W ? words - NEO__W : 0;
    float scale;
    memcpy(&scale, out, sizeof scale);
    const float inverse = NEO__FN(wire_inverse)(scale);
    const uint32_t keep = scale == scale ? ~0u : 0;
    for (int64_t i = 0;; i = i + NEO__W < last ? i + NEO__W : last) {
        NEO__VI word = NEO__SETI(0);
        NEO__EACH(k, planes) {
            const int64_t at = (planes - 1 - k) * words + i;
            const NEO__VF v = even ? NEO__LOAD(x + at) : NEO__FN(wire_load)(x, at, n);
            const NEO__VI code = NEO__FN(wire_code)(wire, v * factor * inverse);
            word = word << (uint32_t)bits | code;
        }
        NEO__FN(wire_store)(out + 4 + 4 * i, NEO__AS_F(word & keep), even ? NEO__W : words - i);
        if (i == last) break;
    }
}
/* A plane's last vector may reach into the next plane, which overwrites it, not past the block. */
NEO__KERNEL_INLINE void NEO__FN(wire_decode_block)(int wire, int even, int64_t n,
                                                   const char *in, float back, float *x) {
    const int bits = NEO__FN(wire_bits)(wire), planes = 32 / bits;
    if (even && NEO__W * planes == NEO_WIRE_BLOCK) n = NEO_WIRE_BLOCK;
    const int64_t words = (n + planes - 1) / planes, last = words > NEO__W ? words - NEO__W : 0;
    float scale;
    memcpy(&scale, in, sizeof scale);
    for (int64_t i = 0;; i = i + NEO__W < last ? i + NEO__W : last) {
        NEO__VI word = NEO__FN(wire_load_words)(in + 4 + 4 * i, even ? NEO__W : words - i);
        NEO__EACH(k, planes) {
            const int64_t at = k * words + i;
            const NEO__VI code = word & ((1u << bits) - 1u);
            const NEO__VF v = NEO__FN(wire_value)(wire, code) * scale;
            NEO__FN(wire_store)(x + at, v * back, even ? NEO__W : n - at);
            word = word >> (uint32_t)bits;
        }
        if (i == last) break;
    }
}
/* The scale of the block at a place, or its codes; on to the next block. */
NEO__KERNEL_INLINE void NEO__FN(wire_encode_at)(int wire, const neo__wire_call *call,
                                                neo__wire_place *at, int codes) {
    const float *x = (const float *)call->in + at->row * call->stride + at->col;
    const int64_t left = call->cols - at->col, whole = NEO_WIRE_BLOCK, n = NEO__MIN(left, whole);
    char *out = (char *)call->out + (size_t)at->row * call->row_bytes;
    out += neo__code_bytes(wire, at->col);
    if (codes) NEO__BY_ENDS(NEO__FN(wire_encode_block), wire, n, x, call->factor, out);
    else {
        const float scale = NEO__FN(wire_block_scale)(wire, x, n, call->factor);
        memcpy(out, &scale, sizeof scale);
    }
    at->col += whole;
    if (left > whole) return;
    at->col = 0;
    at->row++;
}
/* Scales are one block ahead: codes wait long for theirs (two divisions after a maximum). */
NEO__KERNEL_INLINE void NEO__FN(wire_encode_as)(int wire, const neo__wire_call *c) {
    neo__wire_place scaled = {0, 0}, coded = {0, 0};
    for (int codes = 0; coded.row < c->rows; codes = 1) {
        if (scaled.row < c->rows) NEO__FN(wire_encode_at)(wire, c, &scaled, 0);
        if (codes) NEO__FN(wire_encode_at)(wire, c, &coded, 1);
    }
}
#define NEO__BY_WIRE(wire, f, ...)                                                                 \
    switch (wire) {                                                                                \
    case NEO_WIRE_F8E4M3: f(NEO_WIRE_F8E4M3, __VA_ARGS__); break;                                  \
    case NEO_WIRE_F8E5M2: f(NEO_WIRE_F8E5M2, __VA_ARGS__); break;                                  \
    case NEO_WIRE_I8: f(NEO_WIRE_I8, __VA_ARGS__); break;                                          \
    default: f(NEO_WIRE_I4, __VA_ARGS__); break;                                                   \
    }
NEO__KERNEL void NEO__FN(wire_encode)(const neo__wire_call *c) {
    if (c->rows != 0 && c->cols != 0) NEO__BY_WIRE(c->wire, NEO__FN(wire_encode_as), c)
}
NEO__KERNEL_INLINE void NEO__FN(wire_decode_as)(int wire, const char *in, int64_t n, float back,
                                                float *x) {
    const int64_t whole = NEO_WIRE_BLOCK;
    for (; n > 0; n -= whole, x += whole, in += neo__code_bytes(wire, whole))
        NEO__BY_ENDS(NEO__FN(wire_decode_block), wire, NEO__MIN(n, whole), in, back, x);
}
NEO__KERNEL void NEO__FN(wire_decode)(int wire, const char *in, int64_t n, float back, float *x) {
    NEO__BY_WIRE(wire, NEO__FN(wire_decode_as), in, n, back, x)
}
#endif
#undef NEO__MAXI
#endif
#if NEO__PASS != NEO__PASS_WARP
static const neo__wire_kernels NEO__FN(wire_kernels) = {
    NEO__TRAIN(NEO__FN8(wire_times_all)),
    NEO__TRAIN(NEO__FN8(wire_encode)),
    NEO__TRAIN(NEO__FN8(wire_decode)),
};
#endif
#endif
/* These differ between passes; other macros stay. */
#undef NEO__ADD1
#undef NEO__ANY
#undef NEO__AS_F
#undef NEO__AS_I
#undef NEO__DEAL
#undef NEO__DIV1
#undef NEO__EQ
#undef NEO__EQI
#undef NEO__FMA
#undef NEO__FMA1
#undef NEO__FN
#undef NEO__DOTS
#undef NEO__DOTS_LOAD
#undef NEO__FN8
#undef NEO__FNMA
#undef NEO__GROUP_LIST
#undef NEO__GT
#undef NEO__GTI
#undef NEO__HIGH_WORD
#undef NEO__KEEP
#undef NEO__KEEP_BEGIN
#undef NEO__KEEP_ROOM
#undef NEO__KEPT
#undef NEO__KERNEL
#undef NEO__KERNEL_FAR
#undef NEO__KERNEL_INLINE
#undef NEO__LANE
#undef NEO__LANES
#undef NEO__LD
#undef NEO__LE
#undef NEO__LOAD
#undef NEO__LOADI
#undef NEO__LOADP
#undef NEO__LOAD_B
#undef NEO__LOAD_F16
#undef NEO__LOAD_H
#undef NEO__LONG_LOOP
#undef NEO__LOOP
#undef NEO__LT
#undef NEO__MAX_
#undef NEO__MERGE_EVEN
#undef NEO__MIN_
#undef NEO__MM
#undef NEO__MUL1
#undef NEO__MUL_EVEN
#undef NEO__PART
#undef NEO__ROWS
#undef NEO__ROW_LIST
#undef NEO__SELECT
#undef NEO__SELECTI
#undef NEO__SET
#undef NEO__SETI
#undef NEO__SPILL
#undef NEO__SQRT
#undef NEO__SQRT1
#undef NEO__ST
#undef NEO__STORE
#undef NEO__STOREP
#undef NEO__STORE_B
#undef NEO__STORE_F16
#undef NEO__STORE_H
#undef NEO__SUB1
#undef NEO__SYNC
#undef NEO__TILE_SIZES
#undef NEO__TO_F
#undef NEO__TO_I
#undef NEO__TREE16
#undef NEO__TRUNC_I
#undef NEO__VF
#undef NEO__VI
#undef NEO__VM
#undef NEO__VS
#undef NEO__W
#undef NEO__XOR3
#undef NEO__PIN
#undef NEO__COUNT_IF
#undef NEO__MINI
#undef NEO__LOAD_EVEN
#undef NEO__SPREAD
#undef NEO__UNPACK64
#undef NEO__ZIP_HIGH
#undef NEO__ZIP_LOW
#undef NEO__SLLV
#undef NEO__SRLV
#endif /* NEO__PASS */
