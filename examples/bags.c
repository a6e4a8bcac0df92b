/* bags.c: embedding bags alone. Every id has a hidden value, and only the pooled values of bags of
   ids are seen. Three tables of 1,000 rows learn the hidden values by squared error. neo adds the
   gradients of an id that occurs several times in a batch before the optimizer steps its row.

     cc -O2 -I. examples/bags.c examples/neo.c -o bags -lm -lpthread && ./bags

   Expect the loss to fall from about 1.6 to below 0.05, and `state 87be237c9f8b7528` on any
   machine. */
#include "neo_state.h"
#include <stdio.h>

enum { TABLES = 3, ROWS = 1000, DIM = 8, BATCH = 64, IDS = 4, STEPS = 2000 };

#define TRY(call)                                                                                  \
    if ((call) != NEO_OK) return fprintf(stderr, "bags: %s\n", neo_last_error()), 1

int main(void) {
    neo_ctx *ctx;
    neo_bags *bags;
    neo_jagged_buffer *ids;
    neo_state *state;
    static int64_t id[TABLES * BATCH * IDS];
    static int32_t length[TABLES * BATCH];
    static float out[BATCH * TABLES * DIM], target[BATCH * TABLES * DIM];
    static float grad[BATCH * TABLES * DIM];

    neo_table_desc tables[TABLES] = {
        {.name = "user", .rows = ROWS, .dim = DIM, .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}},
        {.name = "item", .rows = ROWS, .dim = DIM, .pooling = NEO_POOL_MEAN,
         .optim = {.kind = NEO_BAG_ADAM, .lr_scale = 0.1f}},
        {.name = "tag", .rows = ROWS, .dim = DIM, .optim = {.kind = NEO_BAG_ADAGRAD}},
    };
    neo_bags_desc bags_desc = {.tables = tables, .table_count = TABLES, .max_batch = BATCH,
                               .max_ids = TABLES * BATCH * IDS};
    neo_jagged_desc ids_desc = {.feature_count = TABLES, .max_bags = TABLES * BATCH,
                                .max_ids = TABLES * BATCH * IDS};
    TRY(neo_ctx_create(&(neo_ctx_desc){.seed = 1}, &ctx));
    TRY(neo_bags_create(ctx, &bags_desc, &bags));
    TRY(neo_jagged_create(ctx, &ids_desc, &ids));
    int64_t width = neo_bags_out_width(bags);
    neo_tensor y = neo_tensor_2d(out, NEO_F32, BATCH, width);
    neo_tensor t = neo_tensor_2d(target, NEO_F32, BATCH, width);
    neo_tensor dy = neo_tensor_2d(grad, NEO_F32, BATCH, width);
    uint64_t stream = neo_hash("bags.c");

    for (int64_t step = 0; step < STEPS; step++) {
        /* bags of 1 .. IDS ids; the first ids are drawn more often, as in real data */
        int64_t n = 0;
        for (int64_t bag = 0; bag < TABLES * BATCH; bag++) {
            length[bag] = (int32_t)(1 + bag % IDS);
            for (int k = 0; k < length[bag]; k++, n++) {
                float x = neo_random_uniform(1, stream, step, NEO_STREAM_USER, (uint64_t)n);
                id[n] = neo_zipf(x, ROWS, 1.1f);
            }
        }
        /* the target: +1 for odd ids, -1 for even ones, pooled as the table does */
        for (int64_t bag = 0, first = 0; bag < TABLES * BATCH; first += length[bag++]) {
            float sum = 0;
            for (int k = 0; k < length[bag]; k++) sum += id[first + k] % 2 ? 1.0f : -1.0f;
            if (tables[bag / BATCH].pooling == NEO_POOL_MEAN) sum /= (float)length[bag];
            for (int c = 0; c < DIM; c++) target[bag % BATCH * width + bag / BATCH * DIM + c] = sum;
        }

        double loss;
        TRY(neo_jagged_set(ids, BATCH, length, NEO_I32, id, NEO_I64, NULL));
        TRY(neo_bags_forward(bags, neo_jagged_view(ids), y));
        TRY(neo_mse(ctx, NULL, y, t, dy, &loss));
        TRY(neo_bags_backward(bags, neo_jagged_view(ids), dy, 0.3f));
        if (step % 500 == 0 || step == STEPS - 1)
            printf("step %4lld  loss %.4f\n", (long long)step, loss);
    }

    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_bags(state, bags));
    printf("state %016llx\n", (unsigned long long)neo_state_digest(state));
    neo_state_destroy(state);
    neo_jagged_destroy(ids);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    return 0;
}
