/* panels.h: what serve/panels.c asks of neo's private parts; the checked neo, of neo.c, answers. */
#ifndef NEO_TEST_PANELS_H
#define NEO_TEST_PANELS_H

#include "neo.h"

/* A layer of a served model, x w^T + bias: the floats of its panels, 0 where it gets none; these;
   the product by them, by w where they are NULL. */
int64_t panels_floats(const neo_ctx *ctx, neo_tensor w, neo_tensor bias);
neo_status panels_make(neo_ctx *ctx, neo_tensor w, neo_tensor bias, float *panels, int64_t floats);
neo_status panels_product(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias,
                          const float *panels, neo_activation act, neo_tensor y);
/* The least width and the largest depth of a layer that gets panels. */
typedef struct panels_limits {
    int64_t lanes, least_n, most_k;
} panels_limits;
panels_limits panels_limits_of(const neo_ctx *ctx);
#endif
