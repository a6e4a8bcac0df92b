/* dcnv2.c: DLRM-DCNv2, the model of MLPerf's recommendation benchmark, on generated samples: the
   outputs of the bottom MLP and of the tables lie side by side, and a cross network of low rank
   takes the place of the DLRM's dot products. trainer.c is the DLRM.

     cc -O2 -I. examples/dcnv2.c examples/neo.c -o dcnv2 -lm -lpthread && ./dcnv2

   Expect a falling loss, and `state 306f1e3319df058c` on any machine. */
#include "neo_data.h"
#include <stdio.h>

enum { B = 256, D = 16, F = 26, DENSE = 13, WIDTH = (F + 1) * D, LAYERS = 3, RANK = 64 };
#define TRY(call)                                                                                  \
    if ((call) != NEO_OK) return fprintf(stderr, "dcnv2: %s\n", neo_last_error()), 1

/* z: x and e are its columns, so nothing is copied to bring them together. */
static float z[B * WIDTH], dz[B * WIDTH], crossed[B * WIDTH], dcrossed[B * WIDTH];
static float logit[B], dlogit[B];

int main(void) {
    neo_ctx *ctx;
    neo_schema *schema;
    neo_reader *reader;
    neo_params *params;
    neo_mlp *bottom, *top;
    neo_cross *cross;
    neo_optim *optim;
    neo_bags *bags;
    neo_state *state;
    neo_batch batch;
    neo_status status;
    neo_mlp_desc bottom_desc = {.name = "bottom", .width_count = 3, .widths = {DENSE, 64, D},
                                .max_batch = B, .act = NEO_ACT_RELU, .last_act = NEO_ACT_RELU};
    neo_mlp_desc top_desc = {.name = "top", .width_count = 3, .widths = {WIDTH, 64, 1},
                             .max_batch = B, .act = NEO_ACT_RELU};
    neo_cross_desc cross_desc = {.name = "cross", .width = WIDTH, .rank = RANK, .layers = LAYERS,
                                 .max_batch = B};
    neo_table_desc tables[F];
    double loss, sum = 0;

    TRY(neo_ctx_create(&(neo_ctx_desc){.seed = 1}, &ctx));
    TRY(neo_schema_synthetic(ctx, &(neo_synthetic_desc){.samples = 200 * B}, &schema));
    TRY(neo_reader_open(ctx, &(neo_reader_desc){.schema = schema, .batch = B}, &reader));
    TRY(neo_params_create(ctx, &params));
    TRY(neo_mlp_create(ctx, params, &bottom_desc, &bottom));
    TRY(neo_cross_create(ctx, params, &cross_desc, &cross));
    TRY(neo_mlp_create(ctx, params, &top_desc, &top));
    TRY(neo_optim_create(ctx, params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD}, &optim));
    for (int t = 0; t < F; t++) {
        neo_feature f = neo_schema_feature(schema, t);
        tables[t] = (neo_table_desc){.name = f.name, .rows = f.rows, .dim = D,
                                     .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    neo_bags_desc bags_desc = {.tables = tables, .table_count = F, .max_batch = B,
                               .max_ids = B * F};
    TRY(neo_bags_create(ctx, &bags_desc, &bags));

    for (int step = 1; (status = neo_reader_next(reader, &batch)) == NEO_OK; step++) {
#define T(data, columns) neo_tensor_2d(data, NEO_F32, batch.size, columns)
        neo_tensor all = T(z, WIDTH), dall = T(dz, WIDTH);
        neo_tensor x = neo_tensor_slice(all, 1, 0, D), e = neo_tensor_slice(all, 1, D, F * D);
        neo_tensor dx = neo_tensor_slice(dall, 1, 0, D), de = neo_tensor_slice(dall, 1, D, F * D);

        TRY(neo_mlp_forward(bottom, batch.dense, x));
        TRY(neo_bags_forward(bags, &batch.sparse, e));
        TRY(neo_cross_forward(cross, all, T(crossed, WIDTH)));
        TRY(neo_mlp_forward(top, T(crossed, WIDTH), T(logit, 1)));
        TRY(neo_bce_with_logits(ctx, NULL, T(logit, 1), batch.label, T(dlogit, 1), &loss));
        TRY(neo_optim_begin(optim, 0.02f)); /* layers step in their backward */
        TRY(neo_mlp_backward(top, NULL, T(dlogit, 1), T(dcrossed, WIDTH)));
        TRY(neo_cross_backward(cross, NULL, T(dcrossed, WIDTH), dall));
        TRY(neo_bags_backward(bags, &batch.sparse, de, 0.05f)); /* steps the tables */
        TRY(neo_mlp_backward(bottom, NULL, dx, neo_tensor_none()));
        TRY(neo_optim_step(optim, 0.02f));
        sum += loss;
        if (step % 50 == 0) printf("step %d  loss %.4f\n", step, sum / 50), sum = 0;
    }
    if (status != NEO_END) TRY(status);
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_params(state, params));
    TRY(neo_state_add_bags(state, bags));
    printf("state %016llx\n", (unsigned long long)neo_state_digest(state));

    neo_state_destroy(state);
    neo_bags_destroy(bags);
    neo_optim_destroy(optim);
    neo_mlp_destroy(top);
    neo_cross_destroy(cross);
    neo_mlp_destroy(bottom);
    neo_params_destroy(params);
    neo_reader_close(reader);
    neo_schema_destroy(schema);
    neo_ctx_destroy(ctx);
    return 0;
}
