/* summary.h: --summary: what a model consists of, before anything trains. */
#ifndef EXAMPLE_SUMMARY_H
#define EXAMPLE_SUMMARY_H
#include "job.h"

typedef struct summary {
    int64_t numbers; /* parameters */
    double bytes, state_bytes, flops; /* flops: of one sample forward */
} summary;

/* A tensor [rows][columns], or [rows] if columns is 0. state: floats of the optimizer for each
   element; flops: of one sample. */
static void summary_tensor(summary *s, const char *name, neo_dtype dtype, int64_t rows,
                           int64_t columns, double state, double flops) {
    char shape[64];
    int64_t numbers = rows * (columns ? columns : 1);
    double bytes = (double)numbers * (double)neo_dtype_size(dtype);
    snprintf(shape, sizeof shape, columns ? "%lld x %lld" : "%lld", (long long)rows,
             (long long)columns);
    printf("%-32s %-5s %20s %14lld %14.0f bytes %12.0f flops\n", name, neo_dtype_name(dtype), shape,
           (long long)numbers, bytes, flops);
    s->numbers += numbers;
    s->bytes += bytes;
    s->state_bytes += state * 4 * (double)numbers;
    s->flops += flops;
}

/* repeats: how often a sample goes through the layers; lookup: a parameter whose rows are looked up
   and not multiplied, or NULL. */
static void summary_params(summary *s, const neo_params *params, double state, int64_t repeats,
                           const char *lookup) {
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_param *p = neo_params_at(params, i);
        neo_tensor t = p->value;
        int multiplies = t.ndim == 2 && (!lookup || strcmp(p->name, lookup));
        summary_tensor(s, p->name, NEO_F32, t.shape[0], t.ndim > 1 ? t.shape[1] : 0, state,
                       multiplies ? 2.0 * (double)(t.shape[0] * t.shape[1] * repeats) : 0);
    }
}

static neo_status summary_end(const summary *s, const char *sample) {
    printf("%lld parameters, %.0f bytes, and %.0f bytes of optimizer state\n",
           (long long)s->numbers, s->bytes, s->state_bytes);
    printf("a %s takes %.0f flops forward, some %.0f to train\n", sample, s->flops, 3 * s->flops);
    return check_stdout();
}
#endif
