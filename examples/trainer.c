/* trainer.c: a recommendation model on generated samples. The headers and neo.c lie beside it:
     cc -O2 -c neo.c && cc -O2 trainer.c neo.o -o trainer -lm -lpthread && ./trainer
   Expect a falling loss, and `state 2b1e8742205737fd` on every machine. */
#include "neo_data.h"
#include <stdio.h>

enum { B = 256, D = 16, F = 26, DENSE = 13, Z = D + F * (F + 1) / 2 }; /* batch, columns, tables */
#define DO(call) do if (call) return fprintf(stderr, "%s\n", neo_last_error()), 1; while (0)

int main(void) {
    static float x[B * D], e[B * F * D], z[B * Z], y[B], dx[B * D], de[B * F * D], dz[B * Z], dy[B];
    neo_ctx *ctx; neo_schema *schema; neo_reader *reader; neo_batch batch; neo_state *state;
    neo_params *params; neo_mlp *bottom, *top; neo_optim *optim; neo_bags *bags;
    neo_mlp_desc mlp = {.name = "bottom", .width_count = 3, .widths = {DENSE, 64, D},
                        .max_batch = B, .act = NEO_ACT_RELU, .last_act = NEO_ACT_RELU};
    neo_table_desc table[F];
    neo_status status;
    double loss, sum = 0;

    DO(neo_ctx_create(&(neo_ctx_desc){.seed = 1}, &ctx));
    DO(neo_schema_synthetic(ctx, &(neo_synthetic_desc){.samples = 200 * B}, &schema));
    DO(neo_reader_open(ctx, &(neo_reader_desc){.schema = schema, .batch = B}, &reader));
    DO(neo_params_create(ctx, &params));
    DO(neo_mlp_create(ctx, params, &mlp, &bottom));
    mlp.name = "top", mlp.widths[0] = Z, mlp.widths[2] = 1, mlp.last_act = NEO_ACT_NONE;
    DO(neo_mlp_create(ctx, params, &mlp, &top));
    DO(neo_optim_create(ctx, params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD}, &optim));
    for (int t = 0; t < F; t++) {
        neo_feature f = neo_schema_feature(schema, t);
        table[t] = (neo_table_desc){.name = f.name, .rows = f.rows, .dim = D,
                                    .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    DO(neo_bags_create(ctx, &(neo_bags_desc){.tables = table, .table_count = F, .max_batch = B,
                                             .max_ids = B * F}, &bags));
#define T(data, columns) neo_tensor_2d(data, NEO_F32, batch.size, columns)
    for (int step = 1; (status = neo_reader_next(reader, &batch)) == NEO_OK; step++) {
        DO(neo_mlp_forward(bottom, batch.dense, T(x, D)));
        DO(neo_bags_forward(bags, &batch.sparse, T(e, F * D)));
        DO(neo_interact_forward(ctx, 0, T(x, D), T(e, F * D), T(z, Z)));
        DO(neo_mlp_forward(top, T(z, Z), T(y, 1)));
        DO(neo_bce_with_logits(ctx, NULL, T(y, 1), batch.label, T(dy, 1), &loss));
        DO(neo_mlp_backward(top, NULL, T(dy, 1), T(dz, Z)));
        DO(neo_interact_backward(ctx, 0, T(x, D), T(e, F * D), T(dz, Z), T(dx, D), T(de, F * D)));
        DO(neo_bags_backward(bags, &batch.sparse, T(de, F * D), 0.05f)); /* steps the tables */
        DO(neo_mlp_backward(bottom, NULL, T(dx, D), neo_tensor_none()));
        DO(neo_optim_step(optim, 0.02f));
        sum += loss;
        if (step % 50 == 0) printf("step %d  loss %.4f\n", step, sum / 50), sum = 0;
    }
    DO(status == NEO_END ? NEO_OK : status);
    DO(neo_state_create(ctx, &state));
    DO(neo_state_add_params(state, params));
    DO(neo_state_add_optim(state, optim));
    DO(neo_state_add_bags(state, bags));
    printf("state %016llx\n", (unsigned long long)neo_state_digest(state));
    return 0; /* a longer program would destroy what it created */
}
