/* seconds.h: what the parts of a GPT's step take a rank, by a calibration. After neo_plan.h. */
#ifndef GPT_SECONDS_H
#define GPT_SECONDS_H
#include <string.h>

/* Parts, forward; GPT_BACK further on backward. The rest: norms, GELU and sums of blocks. */
enum { GPT_LAYERS, GPT_ATTENTION, GPT_REST, GPT_HEAD, GPT_BACK, GPT_OPTIMIZER = 2 * GPT_BACK,
       GPT_PARTS };
typedef struct gpt_sizes {
    double rows;               /* tokens of a call */
    double forwards, backward; /* calls of a block in a step */
    int64_t layers, width, heads, context, vocabulary;
    double params;             /* that the optimizer steps */
} gpt_sizes;
/* Seconds of each part: products in f32. A step touches parameters with gradients and a state,
   tensors of blocks with gradients, and what others on the machine do meanwhile; two uses of a
   layer's weights are a third of that apart. */
static void gpt_seconds(const neo_cluster *c, const gpt_sizes *s, double seconds[GPT_PARTS]) {
    const int64_t w = s->width, shape[4][2] = {{w, 3 * w}, {w, w}, {w, 4 * w}, {4 * w, w}};
    double touched = 0;
    for (int pass = 0; pass < 2; pass++) {
        const double apart = touched / 3;
        touched = 12 * s->params + 24 * 4 * s->rows * (double)(w * s->layers);
        memset(seconds, 0, GPT_PARTS * sizeof *seconds);
        for (int back = 0; back < 2; back++) {
            double *to = seconds + back * GPT_BACK;
            const double blocks = (back ? s->backward : s->forwards) * (double)s->layers;
            const neo_layer_way way = back ? NEO_LAYER_BACKWARD : NEO_LAYER_FORWARD,
                                attention = back ? NEO_LAYER_ATTENTION_BACKWARD
                                                 : NEO_LAYER_ATTENTION,
                                rest = back ? NEO_LAYER_REST_BACKWARD : NEO_LAYER_REST;
            for (int k = 0; k < 4; k++)
                to[GPT_LAYERS] += blocks * neo_layer_seconds(c, s->rows, shape[k][0], shape[k][1],
                                                             way, apart);
            to[GPT_ATTENTION] = blocks * neo_layer_seconds(c, (double)s->heads * s->rows,
                                                           w / s->heads, s->context, attention, 0);
            to[GPT_REST] = blocks * neo_layer_seconds(c, s->rows, w, 1, rest, 0);
            to[GPT_HEAD] = s->backward * neo_layer_seconds(c, s->rows, w, s->vocabulary, way,
                                                           apart);
        }
        for (int k = 0; k < GPT_OPTIMIZER; k++) touched += c->calibration.others * seconds[k];
    }
    seconds[GPT_OPTIMIZER] = neo_step_seconds(c, s->params, touched);
}
#endif
