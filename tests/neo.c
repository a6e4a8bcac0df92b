/* neo.c: neo.h and the headers that are implemented with it, as the tests link them, and what
   panels.h and tiers.c ask of them. */
#include "neo_serve.h"
#include "neo_store.h"

#if defined(NEO_IMPLEMENTATION)
#include "panels.h"

panels_limits panels_limits_of(const neo_ctx *ctx) {
    const int64_t lanes = ctx->gemm->lanes;
    panels_limits l = {lanes, NEO__MAX(lanes, NEO__GEMM_SWAP_COLS + 1), NEO__LISTED_PLACES - 1};
    return l;
}
int64_t panels_floats(const neo_ctx *ctx, neo_tensor w, neo_tensor bias) {
    neo__weight weight[2];
    memset(weight, 0, sizeof weight);
    weight[0].t = w, weight[1].t = bias;
    return neo__model_panel_floats(ctx, weight);
}
neo_status panels_make(neo_ctx *ctx, neo_tensor w, neo_tensor bias, float *panels, int64_t floats) {
    neo__weight weight[2];
    memset(weight, 0, sizeof weight);
    weight[0].t = w, weight[1].t = bias;
    weight->turned = panels;
    return neo__model_panels(ctx, weight, floats);
}
neo_status panels_product(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias,
                          const float *panels, neo_activation act, neo_tensor y) {
    neo__gemm_call call = neo__gemm_call_make(x, 0, w, 1, y);
    call.bias = (const float *)bias.data;
    call.panels = panels;
    neo__gemm_call_finish(&call, act, 0, neo_tensor_none(), neo_tensor_none());
    return NEO__RUN(ctx, "panels", gemm, &call);
}
/* Of a tier that nothing was looked up in: its calls and announced batches go on from here, and an
   index knows few calls. */
void tier_counts_from(neo_tier *tier, int64_t calls, uint32_t batches);
void tier_counts_from(neo_tier *tier, int64_t calls, uint32_t batches) {
    neo__tier *t = (neo__tier *)tier;
    for (int64_t i = 0; i < t->table_count; i++) {
        t->tables[i].now = calls;
        t->tables[i].call_bits = 9;
    }
    t->told = t->begun = batches;
}
#endif
