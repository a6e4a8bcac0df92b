/* optim.c: neo_params, the dense optimizers, clipping, schedules.
   Goal     the rules of torch.optim, step by step; norms and steps that do not depend on threads
            or instruction set; predicted memory; no allocation in a step; refusals change nothing.
   Method   a naive reference in double, 12 steps with fresh gradients. */
#include "neo_run.h"
#include "test.h"

/* ---- parameters ---- */
static neo_init constant(float a) {
    neo_init init = {NEO_INIT_CONSTANT, a, 0};
    return init;
}
static neo_init uniform(float a) {
    neo_init init = {NEO_INIT_UNIFORM, -a, a};
    return init;
}
static const neo_init zeros = {NEO_INIT_DEFAULT, 0, 0};

static void params_are_named_padded_and_found(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_memory before = neo_ctx_memory(ctx);
    neo_params *params = NULL;
    REQUIRE_OK(neo_params_create(ctx, &params));
    const neo_param *first = NULL, *p = NULL;
    int64_t shape[4] = {3, 5, 1, 1}, bad[1] = {-1}, huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
    REQUIRE_OK(neo_params_add(params, "a.weight", 2, shape, constant(2.5f), &first));
    char name[32];
    for (int i = 0; i < 40; i++) { /* the list grows; the first stays where it is */
        snprintf(name, sizeof name, "p%d", i);
        int64_t n = i * 37;
        REQUIRE_OK(neo_params_add(params, name, 1, &n, zeros, &p));
        CHECK(strcmp(p->name, name) == 0 && p == neo_params_at(params, i + 1));
    }
    CHECK_INT(neo_params_count(params), 41);
    CHECK(neo_params_at(params, 0) == first && neo_params_find(params, "a.weight") == first);
    CHECK(neo_params_find(params, "b") == NULL && neo_params_at(params, 41) == NULL &&
          neo_params_at(params, -1) == NULL);
    CHECK(first->value.ndim == 2 && first->value.shape[0] == 3 && first->value.shape[1] == 5);
    for (int i = 0; i < 256; i++) {
        CHECK(((float *)first->value.data)[i] == (i < 15 ? 2.5f : 0.0f));
        CHECK(((float *)first->grad.data)[i] == 0.0f);
    }
    p = NULL;
    CHECK_ERR(neo_params_add(params, "p7", 2, shape, zeros, &p), NEO_ERR_ARG, "'p7' already");
    CHECK_ERR(neo_params_add(params, "", 2, shape, zeros, &p), NEO_ERR_ARG, "needs a name");
    CHECK_ERR(neo_params_add(params, NULL, 2, shape, zeros, &p), NEO_ERR_ARG, "needs a name");
    CHECK_ERR(neo_params_add(params, "x", 5, shape, zeros, &p), NEO_ERR_ARG, "5 dimensions");
    CHECK_ERR(neo_params_add(params, "x", 1, bad, zeros, &p), NEO_ERR_ARG,
              "dimension 0 of 'x' is -1");
    CHECK_ERR(neo_params_add(params, "x", 2, huge, zeros, &p), NEO_ERR_ARG, "too many");
    CHECK(neo_params_add(params, "x", 1, shape, constant(INFINITY), &p) != NEO_OK);
    CHECK(p == NULL && neo_params_find(params, "x") == NULL);
    CHECK_INT(neo_params_count(params), 41);
    neo_params_destroy(params);
    neo_params_destroy(NULL);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before.bytes);
    neo_ctx_destroy(ctx);
}

/* ---- a model of a few parameters and its double reference ---- */
enum { PARAMS = 5, MOST = 1000 };
static const int64_t sizes[PARAMS] = {1, 256, 0, 300, 1000};
static const char *const names[PARAMS] = {"a", "b.weight", "none", "b.bias", "c"};
typedef struct reference {
    double w[PARAMS][MOST], m[PARAMS][MOST], v[PARAMS][MOST];
    double norm;
} reference;

static neo_params *make_params(neo_ctx *ctx) {
    neo_params *params = NULL;
    if (neo_params_create(ctx, &params) != NEO_OK) exit(1);
    for (int i = 0; i < PARAMS; i++)
        if (neo_params_add(params, names[i], 1, &sizes[i], uniform(1.0f), NULL) != NEO_OK) exit(1);
    return params;
}
static float *weights(neo_params *params, int i) { return neo_params_at(params, i)->value.data; }
static float *gradients(neo_params *params, int i) { return neo_params_at(params, i)->grad.data; }
static void new_gradients(neo_params *params, uint64_t seed) {
    test_seed = seed;
    for (int i = 0; i < PARAMS; i++) test_fill(gradients(params, i), sizes[i]);
}

static double clip_factor(const neo_optim_desc *d, neo_params *params, double *norm) {
    double sum = 0, most = 0, type = (double)d->clip_norm_type;
    for (int i = 0; i < PARAMS; i++)
        for (int64_t k = 0; k < sizes[i]; k++) {
            double g = fabs((double)gradients(params, i)[k]);
            sum += type == 1 ? g : g * g;
            most = fmax(most, g);
        }
    *norm = type == 1 ? sum : isinf(type) ? most : sqrt(sum);
    if (d->clip_norm == 0) return 1;
    return fmin(1, (double)d->clip_norm / (*norm + 1e-6));
}
static double or_default(double x, double standard) { return x == 0 ? standard : x < 0 ? 0 : x; }

/* Algorithm 1 of McMahan et al. 2013: a round of one weight; returns the new z. */
static double ftrl(const neo_optim_desc *d, double beta, double alpha, double g, double *w,
                   double *n, double z) {
    double l1 = (double)d->l1, old = sqrt(*n);
    *n += g * g;
    z += g - (sqrt(*n) - old) / alpha * *w;
    *w = fabs(z) <= l1 ? 0
                       : -(z - (z < 0 ? -l1 : l1)) /
                             ((beta + sqrt(*n)) / alpha + (double)d->weight_decay);
    return z;
}
static void reference_step(reference *r, const neo_optim_desc *d, neo_params *params, double lr,
                           int t) {
    double beta1 = or_default(d->beta1, 0.9), wd = (double)d->weight_decay,
           beta2 = or_default(d->beta2, d->kind == NEO_OPTIM_RMSPROP ? 0.99 : 0.999);
    double eps = or_default((double)d->eps, d->kind == NEO_OPTIM_ADAGRAD ? 1e-10
                                            : d->kind == NEO_OPTIM_LAMB  ? 1e-6
                                            : d->kind == NEO_OPTIM_FTRL  ? 1
                                                                         : 1e-8);
    double clip = clip_factor(d, params, &r->norm), momentum = (double)d->momentum;
    for (int i = 0; i < PARAMS; i++) {
        static double u[MOST];
        double w2 = 0, u2 = 0;
        for (int64_t k = 0; k < sizes[i]; k++) {
            double *w = &r->w[i][k], *m = &r->m[i][k], *v = &r->v[i][k],
                   g = clip * (double)gradients(params, i)[k];
            if (d->kind == NEO_OPTIM_ADAMW) *w *= 1 - lr * wd;
            else if (d->kind != NEO_OPTIM_LAMB && d->kind != NEO_OPTIM_FTRL) g += wd * *w;
            if (d->kind == NEO_OPTIM_SGD) {
                *m = t == 1 ? g : momentum * *m + (1 - (double)d->dampening) * g;
                if (momentum != 0) g = d->nesterov ? g + momentum * *m : *m;
                *w -= lr * g;
            } else if (d->kind == NEO_OPTIM_ADAGRAD) {
                *m += g * g;
                *w -= lr / (1 + (t - 1) * (double)d->lr_decay) * g / (sqrt(*m) + eps);
            } else if (d->kind == NEO_OPTIM_RMSPROP) {
                *m = beta2 * *m + (1 - beta2) * g * g;
                *v = momentum * *v + g / (sqrt(*m) + eps);
                *w -= lr * *v;
            } else if (d->kind == NEO_OPTIM_FTRL) { /* the paper's z at this rate, and back */
                double z = *v - *w * (eps + sqrt(*m)) / lr;
                z = ftrl(d, eps, lr, g, w, m, z);
                *v = z + *w * (eps + sqrt(*m)) / lr;
            } else {
                *m = beta1 * *m + (1 - beta1) * g;
                *v = beta2 * *v + (1 - beta2) * g * g;
                u[k] = *m / (1 - pow(beta1, t)) / (sqrt(*v / (1 - pow(beta2, t))) + eps);
                if (d->kind == NEO_OPTIM_LAMB) u[k] += wd * *w;
                else *w -= lr * u[k];
                w2 += *w * *w;
                u2 += u[k] * u[k];
            }
        }
        double ratio = w2 > 0 && u2 > 0 ? sqrt(w2 / u2) : 1;
        for (int64_t k = 0; d->kind == NEO_OPTIM_LAMB && k < sizes[i]; k++)
            r->w[i][k] -= lr * ratio * u[k];
    }
}

static const neo_optim_desc kinds[] = {
    {.kind = NEO_OPTIM_SGD},
    {.kind = NEO_OPTIM_SGD, .weight_decay = 0.1f},
    {.kind = NEO_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 0.01f},
    {.kind = NEO_OPTIM_SGD, .momentum = 0.8f, .dampening = 0.3f},
    {.kind = NEO_OPTIM_SGD, .momentum = 0.9f, .nesterov = 1, .clip_norm = 5, .clip_norm_type = 1},
    {.kind = NEO_OPTIM_ADAGRAD},
    {.kind = NEO_OPTIM_ADAGRAD,
     .lr_decay = 0.1f,
     .initial_accumulator = 0.5f,
     .weight_decay = 0.1f,
     .eps = 1e-4f},
    {.kind = NEO_OPTIM_ADAM},
    {.kind = NEO_OPTIM_ADAM, .weight_decay = 0.1f, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3f},
    {.kind = NEO_OPTIM_ADAM, .beta1 = -1, .clip_norm = 3, .clip_norm_type = 2},
    {.kind = NEO_OPTIM_ADAMW, .weight_decay = 0.1f, .clip_norm = 1e9f, .clip_norm_type = 2},
    {.kind = NEO_OPTIM_ADAMW, .weight_decay = 0.1f, .clip_norm = 0.5f, .clip_norm_type = INFINITY},
    {.kind = NEO_OPTIM_LAMB, .weight_decay = 0.01f},
    {.kind = NEO_OPTIM_LAMB},
    {.kind = NEO_OPTIM_RMSPROP, .eps = 1e-4f},
    {.kind = NEO_OPTIM_RMSPROP, .weight_decay = 0.1f, .momentum = 0.9f, .beta2 = 0.9, .eps = 1e-2f},
    {.kind = NEO_OPTIM_FTRL},
    {.kind = NEO_OPTIM_FTRL, .weight_decay = 0.3f, .l1 = 0.5f, .initial_accumulator = 0.1f},
    {.kind = NEO_OPTIM_FTRL, .l1 = 4, .eps = 0.1f, .clip_norm = 5, .clip_norm_type = 2},
};
enum { KINDS = sizeof kinds / sizeof *kinds, STEPS = 12 };

static void steps_equal_the_reference(void) {
    static reference r;
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    for (int c = 0; c < KINDS; c++) {
        const neo_optim_desc *d = &kinds[c];
        neo_params *params = make_params(ctx);
        neo_optim *optim = NULL;
        REQUIRE_OK(neo_optim_create(ctx, params, d, &optim));
        memset(&r, 0, sizeof r);
        for (int i = 0; i < PARAMS; i++)
            for (int64_t k = 0; k < sizes[i]; k++) {
                r.w[i][k] = (double)weights(params, i)[k];
                r.m[i][k] = (double)d->initial_accumulator;
            }
        for (int t = 1; t <= STEPS; t++) {
            new_gradients(params, (uint64_t)(100 * c + t));
            float lr = 0.05f / (float)t;
            reference_step(&r, d, params, (double)lr, t);
            CHECK_OK(neo_optim_step(optim, lr));
            if (d->clip_norm > 0) CHECK_NEAR(neo_optim_grad_norm(optim), r.norm, 1e-6 * r.norm);
            else CHECK(neo_optim_grad_norm(optim) == 0);
        }
        CHECK_INT(neo_optim_step_count(optim), STEPS);
        for (int i = 0; i < PARAMS; i++) {
            for (int64_t k = 0; k < sizes[i]; k++)
                if (!(fabs((double)weights(params, i)[k] - r.w[i][k]) <= 2e-6))
                    FAIL("case %d, %s[%d]: %.9g, not %.9g", c, names[i], (int)k,
                         (double)weights(params, i)[k], r.w[i][k]);
            for (int64_t k = sizes[i]; k < (sizes[i] + 255) / 256 * 256; k++)
                CHECK(weights(params, i)[k] == 0 &&
                      gradients(params, i)[k] == 0); /* the padding */
        }
        neo_optim_destroy(optim);
        neo_params_destroy(params);
    }
    neo_ctx_destroy(ctx);
}

/* From zeros at one rate the weights are those of z and n alone, and l1 leaves zeros; a rate of 0
   moves none; without l1 and l2 it is Adagrad. */
static void ftrl_is_the_papers(void) {
    enum { N = 256, ROUNDS = 60 };
    static double w[N], n[N], z[N];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = make_params(ctx), *adagrad_params = make_params(ctx);
    neo_optim *optim = NULL, *adagrad = NULL;
    neo_optim_desc d = {.kind = NEO_OPTIM_FTRL, .l1 = 3, .weight_decay = 0.5f, .eps = 0.5f};
    float *x = weights(params, 1);
    int64_t zeros_seen = 0;
    memset(x, 0, N * sizeof *x);
    REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
    for (int t = 0; t < ROUNDS; t++) {
        new_gradients(params, (uint64_t)t);
        for (int i = 0; i < N; i++)
            z[i] = ftrl(&d, 0.5, (double)0.1f, (double)gradients(params, 1)[i], &w[i], &n[i], z[i]);
        CHECK_OK(neo_optim_step(optim, 0.1f));
    }
    for (int i = 0; i < N; i++) {
        CHECK_NEAR(x[i], w[i], 2e-6);
        if (fabs(fabs(z[i]) - 3) > 1e-4) CHECK((x[i] == 0) == (w[i] == 0));
        zeros_seen += x[i] == 0;
    }
    CHECK(zeros_seen > N / 8 && zeros_seen < N - N / 8);
    memcpy(weights(adagrad_params, 1), x, N * sizeof *x);
    CHECK_OK(neo_optim_step(optim, 0.0f));
    CHECK_BITS(weights(adagrad_params, 1), x, N * sizeof *x);
    memset(x, 0, N * sizeof *x); /* a weight of 0 stays finite where a square is not */
    gradients(params, 1)[3] = 1e20f;
    CHECK_OK(neo_optim_step(optim, 0.1f));
    CHECK(x[3] == 0);
    neo_optim_destroy(optim);
    neo_params_destroy(params);

    params = make_params(ctx);
    REQUIRE_OK(neo_optim_create(ctx, params, &(neo_optim_desc){.kind = NEO_OPTIM_FTRL}, &optim));
    REQUIRE_OK(neo_optim_create(ctx, adagrad_params,
                                &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD, .eps = 1}, &adagrad));
    memcpy(weights(adagrad_params, 1), weights(params, 1), N * sizeof *x);
    for (int t = 0; t < ROUNDS; t++) {
        new_gradients(params, (uint64_t)t);
        new_gradients(adagrad_params, (uint64_t)t);
        CHECK_OK(neo_optim_step(optim, 0.5f / (float)(t + 1)));
        CHECK_OK(neo_optim_step(adagrad, 0.5f / (float)(t + 1)));
    }
    for (int i = 0; i < N; i++)
        CHECK_NEAR(weights(params, 1)[i], weights(adagrad_params, 1)[i], 1e-6);
    neo_optim_destroy(optim);
    neo_optim_destroy(adagrad);
    neo_params_destroy(params);
    neo_params_destroy(adagrad_params);
    neo_ctx_destroy(ctx);
}

/* A bigger model, so that several tasks share a parameter. */
static void same_bits_everywhere(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static const int threads[] = {1, 2, 3, 8};
    int64_t big[2] = {301, 333}, small = 77;
    size_t bytes = (size_t)(big[0] * big[1]) * sizeof(float);
    float *first = malloc(bytes);
    for (int c = 0; c < KINDS; c++)
        for (int run = 0; run < 8; run++) {
            neo_isa isa = isas[run % 4];
            if (!neo_isa_available(isa)) continue;
            neo_ctx *ctx = test_ctx(threads[(run + run / 4) % 4], isa, 1);
            neo_params *params = NULL;
            neo_optim *optim = NULL;
            const neo_param *w = NULL, *b = NULL;
            REQUIRE_OK(neo_params_create(ctx, &params));
            REQUIRE_OK(neo_params_add(params, "b", 1, &small, uniform(1.0f), &b));
            REQUIRE_OK(neo_params_add(params, "w", 2, big, uniform(1.0f), &w));
            neo_optim_desc d = kinds[c];
            if (c % 2) d.clip_norm = 10;
            REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
            test_seed = 5;
            for (int t = 0; t < 3; t++) {
                test_fill(b->grad.data, small);
                test_fill(w->grad.data, big[0] * big[1]);
                CHECK_OK(neo_optim_step(optim, 0.01f));
            }
            if (run == 0) memcpy(first, w->value.data, bytes);
            CHECK_BITS(first, w->value.data, bytes);
            neo_optim_destroy(optim);
            neo_params_destroy(params);
            neo_ctx_destroy(ctx);
        }
    free(first);
}

static void memory_is_predicted_and_steps_allocate_nothing(void) {
    neo_ctx *ctx = test_ctx(3, NEO_ISA_BEST, 1);
    for (int c = 0; c < KINDS; c++) {
        neo_params *params = make_params(ctx);
        neo_optim_desc d = kinds[c];
        if (c % 2) d.name = "dense.optimizer";
        neo_memory before = neo_ctx_memory(ctx);
        neo_optim *optim = NULL;
        REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
        neo_memory after = neo_ctx_memory(ctx);
        CHECK_INT(after.bytes - before.bytes, neo_optim_state_bytes(params, &d));
        for (int t = 1; t <= 3; t++) {
            new_gradients(params, (uint64_t)t);
            CHECK_OK(neo_optim_step(optim, 0.01f));
        }
        CHECK_INT(neo_ctx_memory(ctx).alloc_count, after.alloc_count);
        neo_optim_destroy(optim);
        CHECK_INT(neo_ctx_memory(ctx).bytes, before.bytes);
        neo_params_destroy(params);
    }
    neo_optim_destroy(NULL);
    neo_ctx_destroy(ctx);
}

/* LAMB where a norm is zero moves by lr times the plain direction; so do weights that start at
   zero. */
static void lamb_with_zero_norms(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = NULL;
    neo_optim *optim = NULL;
    const neo_param *w = NULL, *still = NULL;
    int64_t n = 3;
    REQUIRE_OK(neo_params_create(ctx, &params));
    REQUIRE_OK(neo_params_add(params, "w", 1, &n, zeros, &w));
    REQUIRE_OK(neo_params_add(params, "still", 1, &n, constant(1.0f), &still));
    neo_optim_desc d = {.kind = NEO_OPTIM_LAMB};
    REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
    for (int i = 0; i < 3; i++) ((float *)w->grad.data)[i] = (float)(i + 1);
    CHECK_OK(neo_optim_step(optim, 0.1f));
    for (int i = 0; i < 3; i++) {
        CHECK_NEAR(((float *)w->value.data)[i], -0.1, 1e-6); /* m/sqrt(v) is 1 at the first step */
        CHECK(((float *)still->value.data)[i] == 1.0f);
    }
    neo_optim_destroy(optim);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}

/* Squares of others count in the norm of one step; the factor is the one that dense gradients get.
   */
static void squares_of_others_are_in_the_norm(void) {
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    neo_optim_desc d = {.kind = NEO_OPTIM_SGD, .clip_norm = 3};
    neo_params *params = make_params(ctx), *scaled = make_params(ctx);
    neo_optim *optim = NULL, *plain = NULL;
    neo_exact squares;
    double sum = 0;
    REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
    REQUIRE_OK(neo_optim_create(ctx, scaled, &(neo_optim_desc){.kind = NEO_OPTIM_SGD}, &plain));
    CHECK(neo_optim_clip_factor(optim) == 1.0f && neo_optim_clip_factor(plain) == 1.0f);
    new_gradients(params, 7);
    for (int i = 0; i < PARAMS; i++)
        for (int64_t k = 0; k < sizes[i]; k++)
            sum += (double)gradients(params, i)[k] * (double)gradients(params, i)[k];
    neo_exact_zero(&squares);
    for (int i = 0; i < 50; i++) neo_exact_add(&squares, 1e4f);
    neo_optim_add_squares(optim, &squares); /* in two parts */
    neo_optim_add_squares(optim, &squares);
    CHECK_OK(neo_optim_step(optim, 0.1f));
    CHECK_NEAR(neo_optim_grad_norm(optim), sqrt(sum + 1e6), 1e-3);
    float factor = neo_optim_clip_factor(optim);
    CHECK_NEAR(factor, 3 / sqrt(sum + 1e6), 1e-6);
    new_gradients(scaled, 7);
    for (int i = 0; i < PARAMS; i++)
        for (int64_t k = 0; k < sizes[i]; k++) gradients(scaled, i)[k] *= factor;
    CHECK_OK(neo_optim_step(plain, 0.1f));
    for (int i = 0; i < PARAMS; i++)
        CHECK_BITS(weights(params, i), weights(scaled, i), (size_t)sizes[i] * 4);
    CHECK_OK(neo_optim_step(optim, 0.1f)); /* they were for one step */
    CHECK_NEAR(neo_optim_grad_norm(optim), sqrt(sum), 1e-4);
    neo_exact_add(&squares, INFINITY);
    neo_optim_add_squares(optim, &squares);
    CHECK_ERR(neo_optim_step(optim, 0.1f), NEO_ERR_NUMERIC, "norm is inf at step 3");
    CHECK_OK(neo_optim_step(optim, 0.1f)); /* also if it failed */
    neo_optim_add_squares(plain, &squares);
    CHECK_OK(neo_optim_step(plain, 0.1f)); /* nothing is limited */
    CHECK(neo_optim_clip_factor(plain) == 1.0f);
    neo_optim_destroy(optim);
    d.clip_norm_type = 1;
    REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
    neo_optim_add_squares(optim, &squares);
    CHECK_ERR(neo_optim_step(optim, 0.1f), NEO_ERR_ARG, "clip_norm_type 1, not 2");
    CHECK_INT(neo_optim_step_count(optim), 0);
    neo_optim_destroy(optim);
    neo_optim_destroy(plain);
    neo_params_destroy(params);
    neo_params_destroy(scaled);
    neo_ctx_destroy(ctx);
}

static void not_finite_norms_change_nothing(void) {
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    static float before[MOST], types[] = {1, 2, INFINITY}, poison[] = {NAN, INFINITY, -INFINITY};
    for (int c = 0; c < 9; c++) {
        neo_params *params = make_params(ctx);
        neo_optim_desc d = {
            .kind = NEO_OPTIM_ADAM, .clip_norm = 1, .clip_norm_type = types[c / 3]};
        neo_optim *optim = NULL;
        REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
        new_gradients(params, 3);
        CHECK_OK(neo_optim_step(optim, 0.1f));
        double norm = neo_optim_grad_norm(optim);
        memcpy(before, weights(params, 4), sizeof before);
        gradients(params, 3)[299] = poison[c % 3];
        CHECK_ERR(neo_optim_step(optim, 0.1f), NEO_ERR_NUMERIC, "at step 2");
        CHECK_BITS(before, weights(params, 4), sizeof before);
        CHECK_INT(neo_optim_step_count(optim), 1);
        CHECK(neo_optim_grad_norm(optim) == norm);
        new_gradients(params, 4);
        CHECK_ERR(neo_optim_step(optim, NAN), NEO_ERR_NUMERIC, "lr is");
        CHECK_ERR(neo_optim_step(optim, INFINITY), NEO_ERR_NUMERIC, "lr is");
        CHECK_BITS(before, weights(params, 4), sizeof before);
        CHECK_OK(neo_optim_step(optim, 0.1f));
        CHECK_INT(neo_optim_step_count(optim), 2);
        neo_optim_destroy(optim);
        neo_params_destroy(params);
    }
    neo_ctx_destroy(ctx);
}

/* ---- steps that layers make ---- */
enum { IN = 150, MOST_ROWS = 520, PLACES = MOST_ROWS * IN, WEIGHTS = 40 };
typedef struct net {
    neo_ctx *ctx;
    neo_params *params;
    neo_cross *cross;
    neo_mlp *mlp;
    neo_optim *optim;
    float *x, *y, *z, *dz, *dy, *dx;
} net;
static net net_make(int threads, neo_isa isa, int leaves, const neo_optim_desc *d) {
    static const neo_mlp_desc mlp = {.name = "mlp",
                                     .widths = {IN, 300, 70, 9, 1},
                                     .width_count = 5,
                                     .max_batch = MOST_ROWS,
                                     .act = NEO_ACT_RELU};
    static const neo_cross_desc cross = {
        .name = "cross", .width = IN, .rank = 33, .layers = 2, .max_batch = MOST_ROWS};
    net n = {.ctx = test_ctx(threads, isa, leaves)};
    CHECK_OK(neo_params_create(n.ctx, &n.params));
    CHECK_OK(neo_cross_create(n.ctx, n.params, &cross, &n.cross));
    CHECK_OK(neo_mlp_create(n.ctx, n.params, &mlp, &n.mlp));
    CHECK_OK(neo_optim_create(n.ctx, n.params, d, &n.optim));
    n.x = calloc(6 * PLACES, sizeof(float));
    n.y = n.x + PLACES, n.z = n.y + PLACES, n.dz = n.z + PLACES;
    n.dy = n.dz + PLACES, n.dx = n.dy + PLACES;
    return n;
}
static void net_free(net *n) {
    free(n->x);
    neo_optim_destroy(n->optim);
    neo_mlp_destroy(n->mlp);
    neo_cross_destroy(n->cross);
    neo_params_destroy(n->params);
    neo_ctx_destroy(n->ctx);
}
#define ROWS(data, cols) neo_tensor_2d(data, NEO_F32, rows, cols)
static void net_forward(net *n, int64_t rows, uint64_t seed) {
    test_seed = seed;
    test_fill(n->x, rows * IN);
    test_fill(n->dz, rows);
    for (int64_t i = 0; i < rows; i++) n->dz[i] /= (float)rows;
    CHECK_OK(neo_cross_forward(n->cross, ROWS(n->x, IN), ROWS(n->y, IN)));
    CHECK_OK(neo_mlp_forward(n->mlp, ROWS(n->y, IN), ROWS(n->z, 1)));
}
static void net_backward(net *n, int64_t rows) {
    CHECK_OK(neo_mlp_backward(n->mlp, NULL, ROWS(n->dz, 1), ROWS(n->dy, IN)));
    CHECK_OK(neo_cross_backward(n->cross, NULL, ROWS(n->dy, IN), ROWS(n->dx, IN)));
}
/* How many parameters' values differ from those kept, and are kept. */
static int net_moved(const net *n, float *kept[WEIGHTS]) {
    int moved = 0;
    for (int i = 0; i < neo_params_count(n->params); i++) {
        const neo_tensor value = neo_params_at(n->params, i)->value;
        const size_t bytes = (size_t)neo_tensor_count(value) * sizeof(float);
        if (kept[i] && memcmp(kept[i], value.data, bytes) != 0) moved++;
        if (!kept[i]) kept[i] = malloc(bytes);
        memcpy(kept[i], value.data, bytes);
    }
    return moved;
}
static void net_same(net *a, net *b) {
    for (int i = 0; i < neo_params_count(a->params); i++) {
        const neo_tensor one = neo_params_at(a->params, i)->value;
        CHECK_BITS(one.data, neo_params_at(b->params, i)->value.data,
                   (size_t)neo_tensor_count(one) * sizeof(float));
    }
    for (int i = 0; i < neo_optim_state_count(a->optim); i++) {
        const neo_tensor one = neo_optim_state_at(a->optim, i, NULL, NULL);
        CHECK_BITS(one.data, neo_optim_state_at(b->optim, i, NULL, NULL).data,
                   (size_t)neo_tensor_count(one) * neo_dtype_size(one.dtype));
    }
}
/* Steps that a backward makes leave the bits of those that neo_optim_step makes: some weights
   move in it, and their gradients stay where they were. */
static void early_case(const neo_optim_desc *d, int threads, neo_isa isa, int leaves) {
    static const int64_t batches[] = {1, 37, 130, 512, MOST_ROWS};
    const int moves = d->clip_norm == 0 && d->kind != NEO_OPTIM_LAMB;
    net plain = net_make(1, NEO_ISA_BEST, leaves, d), early = net_make(threads, isa, leaves, d);
    float *kept[WEIGHTS] = {NULL};
    for (int t = 0; t < 5; t++) {
        const int64_t rows = batches[t];
        const int all = neo_params_count(early.params);
        const neo_param *p = neo_params_find(early.params, "mlp.0.weight");
        float *grad = p->grad.data;
        net_forward(&plain, rows, (uint64_t)t);
        net_backward(&plain, rows);
        CHECK_OK(neo_optim_step(plain.optim, 0.01f));
        net_forward(&early, rows, (uint64_t)t);
        net_moved(&early, kept);
        grad[0] = 12345;
        const int64_t allocated = neo_ctx_memory(early.ctx).alloc_count;
        CHECK_OK(neo_optim_begin(early.optim, 0.01f));
        net_backward(&early, rows);
        const int moved = net_moved(&early, kept);
        CHECK(moves && rows <= 512 ? moved >= (rows > 1 ? 4 : 1) && moved < all : moved == 0);
        CHECK(rows == 1 || (grad[0] == 12345) == (moves && rows <= 512));
        CHECK_OK(neo_optim_step(early.optim, 0.01f));
        CHECK_INT(neo_ctx_memory(early.ctx).alloc_count, allocated);
        net_same(&plain, &early);
    }
    for (int i = 0; i < WEIGHTS; i++) free(kept[i]);
    net_free(&plain);
    net_free(&early);
}
static void early_steps(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    for (int c = 0; c < KINDS; c++) {
        neo_optim_desc d = kinds[c];
        early_case(&d, 1 + c % 3, NEO_ISA_BEST, c % 2 ? 8 : 1);
        d.clip_norm = 1;
        if (c < 2) early_case(&d, 2, NEO_ISA_BEST, 1);
    }
    for (int i = 0; i < 4; i++)
        if (neo_isa_available(isas[i])) early_case(&kinds[5], 1 + i % 2, isas[i], i % 2 ? 1 : 3);
}
static void early_steps_that_fail(void) {
    net n = net_make(1, NEO_ISA_BEST, 1, &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD});
    const int64_t rows = 20;
    float *kept[WEIGHTS] = {NULL};
    CHECK_ERR(neo_optim_begin(NULL, 0.1f), NEO_ERR_ARG, "optim is NULL");
    CHECK_ERR(neo_optim_begin(n.optim, NAN), NEO_ERR_NUMERIC, "neo_optim_begin: lr is");
    net_forward(&n, rows, 1);
    CHECK_OK(neo_optim_begin(n.optim, 0.1f));
    net_backward(&n, rows);
    net_moved(&n, kept);
    CHECK_ERR(neo_optim_step(n.optim, 0.2f), NEO_ERR_ARG, "neo_optim_begin had 0.1");
    CHECK_INT(net_moved(&n, kept), 0);
    CHECK_INT(neo_optim_step_count(n.optim), 0);
    CHECK_ERR(neo_mlp_backward(n.mlp, NULL, ROWS(n.dz, 1), ROWS(n.dy, IN)), NEO_ERR_STATE,
              "of mlp.6.weight, which has moved since neo_optim_begin: neo_optim_step comes");
    neo_param_norm norms[WEIGHTS];
    CHECK_ERR(neo_params_norms(n.params, norms), NEO_ERR_STATE, "moved since neo_optim_begin");
    CHECK_ERR(neo_optim_norms(n.optim, norms), NEO_ERR_STATE, "neo_optim_norms: cross.");
    neo_histogram *counts = malloc(2 * WEIGHTS * sizeof *counts);
    CHECK_ERR(neo_optim_histograms(n.optim, counts, counts + WEIGHTS), NEO_ERR_STATE, "moved");
    free(counts);
    CHECK_OK(neo_optim_step(n.optim, 0.1f));
    CHECK_OK(neo_params_norms(n.params, norms));
    neo_params *other;
    neo_optim *of_other;
    const neo_optim_desc adagrad = {.kind = NEO_OPTIM_ADAGRAD};
    CHECK_OK(neo_params_create(n.ctx, &other));
    CHECK_OK(neo_optim_create(n.ctx, other, &adagrad, &of_other));
    CHECK_OK(neo_optim_begin(n.optim, 0.1f));
    net_backward(&n, rows);
    CHECK_OK(neo_optim_begin(of_other, 0.2f)); /* that of another is still open */
    CHECK_ERR(neo_mlp_backward(n.mlp, NULL, ROWS(n.dz, 1), ROWS(n.dy, IN)), NEO_ERR_STATE,
              "second gradient of mlp.6.weight");
    CHECK_ERR(neo_params_norms(n.params, norms), NEO_ERR_STATE, "moved since neo_optim_begin");
    CHECK_OK(neo_optim_step(n.optim, 0.1f));
    CHECK_OK(neo_optim_step(of_other, 0.2f));
    neo_optim_destroy(of_other);
    neo_params_destroy(other);
    net_backward(&n, rows); /* no step is open */
    net_moved(&n, kept);
    net_backward(&n, rows);
    CHECK_INT(net_moved(&n, kept), 0);
    CHECK_OK(neo_optim_begin(n.optim, 0.1f));
    neo_optim_destroy(n.optim);
    n.optim = NULL;
    net_backward(&n, rows); /* nobody's */
    CHECK_INT(net_moved(&n, kept), 0);
    for (int i = 0; i < WEIGHTS; i++) free(kept[i]);
    net_free(&n);
}

/* Numbers of any size, zeros of both signs, infinities: vectors divide like single numbers. */
static void numbers_of_any_size(void) {
    enum { N = 40000 };
    const int64_t n = N;
    for (int c = 0; c < KINDS; c++) {
        neo_optim_desc d = kinds[c];
        neo_ctx *ctx[2];
        neo_params *params[2];
        d.clip_norm = 0;
        if (d.kind == NEO_OPTIM_LAMB) continue; /* whose norms are infinite */
        for (int k = 0; k < 2; k++) {
            const neo_param *p = NULL;
            neo_optim *optim = NULL;
            ctx[k] = test_ctx(1, k ? NEO_ISA_BEST : NEO_ISA_SCALAR, 1);
            CHECK_OK(neo_params_create(ctx[k], &params[k]));
            CHECK_OK(neo_params_add(params[k], "w", 1, &n, zeros, &p));
            CHECK_OK(neo_optim_create(ctx[k], params[k], &d, &optim));
            test_seed = (uint64_t)c + 1;
            float *data[4] = {p->value.data, p->grad.data};
            for (int s = 0; s < 2 && s + 1 < neo_optim_state_count(optim); s++)
                data[2 + s] = neo_optim_state_at(optim, s, NULL, NULL).data;
            for (int64_t i = 0; i < 4 * n; i++) {
                float sign, x;
                test_fill(&sign, 1);
                test_fill(&x, 1);
                /* a sixteenth each of zeros, denormals; some of which all is of one size */
                const int kind = (int)(i / 7 % 16), wide = i / 4096 % 2;
                float to = kind == 0   ? 0.0f
                           : kind == 1 ? x * 0x1p-140f
                           : wide      ? ldexpf(x, (int)(sign * 120))
                                       : x;
                if (i / 4 % 9999 == 5) to = INFINITY;
                if (data[i % 4]) data[i % 4][i / 4] = i % 4 > 1 ? fabsf(to) : copysignf(to, sign);
            }
            CHECK_OK(neo_optim_step(optim, 0.01f));
            CHECK_OK(neo_optim_step(optim, 0.01f));
            neo_optim_destroy(optim);
        }
        const float *a = weights(params[0], 0), *b = weights(params[1], 0);
        for (int64_t i = 0; i < n; i++)
            CHECK((a[i] != a[i] && b[i] != b[i]) || memcmp(&a[i], &b[i], sizeof *a) == 0);
        for (int k = 0; k < 2; k++) neo_params_destroy(params[k]), neo_ctx_destroy(ctx[k]);
    }
}

static void refusals(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = make_params(ctx);
    neo_optim *optim = NULL;
    static const struct {
        neo_optim_desc d;
        const char *part;
    } bad[] = {
        {{.kind = (neo_optim_kind)17}, "kind 17"},
        {{.weight_decay = -1}, "weight_decay is -1"},
        {{.momentum = NAN}, "momentum is"},
        {{.lr_decay = -1}, "lr_decay"},
        {{.initial_accumulator = -1}, "initial_accumulator"},
        {{.kind = NEO_OPTIM_FTRL, .l1 = -1}, "l1 is -1"},
        {{.kind = NEO_OPTIM_ADAM, .beta1 = 1}, "beta1 is 1"},
        {{.kind = NEO_OPTIM_ADAM, .beta2 = 1.5}, "beta2 is 1.5"},
        {{.eps = -1e-8f}, "eps"},
        {{.clip_norm = -1}, "clip_norm is -1"},
        {{.clip_norm_type = 3}, "clip_norm_type is 3"},
        {{.nesterov = 1}, "nesterov needs momentum > 0"},
        {{.nesterov = 1, .momentum = 0.9f, .dampening = 0.5f}, "nesterov needs"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        optim = (neo_optim *)params;
        CHECK_ERR(neo_optim_create(ctx, params, &bad[i].d, &optim), NEO_ERR_ARG, bad[i].part);
        CHECK(optim == NULL);
    }
    neo_optim_desc d = {.kind = NEO_OPTIM_SGD};
    CHECK_ERR(neo_optim_create(ctx, NULL, &d, &optim), NEO_ERR_ARG, "params");
    REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
    int64_t n = 4;
    REQUIRE_OK(neo_params_add(params, "late", 1, &n, zeros, NULL));
    CHECK_ERR(neo_optim_step(optim, 0.1f), NEO_ERR_STATE, "had 5");
    neo_optim_destroy(optim);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}

static void schedules(void) {
    neo_schedule s = {.kind = NEO_SCHEDULE_CONSTANT, .lr = 0.5f, .warmup_steps = 4};
    CHECK(neo_schedule_lr(&s, 0) == 0.125f && neo_schedule_lr(&s, 2) == 0.375f &&
          neo_schedule_lr(&s, 3) == 0.5f);
    CHECK(neo_schedule_lr(&s, 1000000) == 0.5f);
    s.end_lr = 0.1f;
    s.hold_steps = 3;
    s.total_steps = 107; /* decay from step 7 on, 100 steps long */
    static const neo_schedule_kind list[] = {NEO_SCHEDULE_LINEAR, NEO_SCHEDULE_COSINE,
                                             NEO_SCHEDULE_POLY};
    for (int k = 0; k < 3; k++) {
        s.kind = list[k];
        for (int step = 0; step < 120; step++) {
            double t = step < 7 ? 0 : step > 107 ? 1 : (step - 7) / 100.0, left = 1 - t;
            if (k == 1) left = 0.5 * (1 + cos(t * acos(-1)));
            if (k == 2) left = (1 - t) * (1 - t);
            double lr =
                step < 4 ? 0.5 * (step + 1) / 4 : (double)0.1f + (0.5 - (double)0.1f) * left;
            CHECK_NEAR(neo_schedule_lr(&s, step), lr, 4e-8);
        }
        CHECK(neo_schedule_lr(&s, 107) == 0.1f && neo_schedule_lr(&s, 6) == 0.5f &&
              neo_schedule_lr(&s, 7) == 0.5f);
    }
    s.power = 0.5f;
    CHECK_NEAR(neo_schedule_lr(&s, 82), (double)0.1f + (0.5 - (double)0.1f) * 0.5, 4e-8);
    neo_schedule none = {.kind = NEO_SCHEDULE_LINEAR,
                         .lr = 1}; /* nothing to decay over: the end at once */
    CHECK(neo_schedule_lr(&none, 0) == 0 && neo_schedule_lr(&none, 5) == 0);
}

/* Norms of single parameters, against sums in double; the same bits everywhere. */
static void norms_of_parameters(void) {
    static const neo_isa isas[2] = {NEO_ISA_SCALAR, NEO_ISA_BEST};
    neo_param_norm norm[2][PARAMS], first[PARAMS];
    for (int k = 0; k < 2; k++) {
        neo_ctx *ctx = test_ctx(k ? 3 : 1, isas[k], 1);
        neo_params *params = make_params(ctx);
        neo_optim_desc sgd = {.kind = NEO_OPTIM_SGD};
        neo_optim *optim = NULL;
        new_gradients(params, 5);
        const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
        REQUIRE_OK(neo_params_norms(params, norm[k]));
        CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
        for (int i = 0; i < PARAMS; i++) {
            double grad = 0, weight = 0;
            for (int64_t j = 0; j < sizes[i]; j++) {
                grad += (double)gradients(params, i)[j] * (double)gradients(params, i)[j];
                weight += (double)weights(params, i)[j] * (double)weights(params, i)[j];
            }
            CHECK(strcmp(norm[k][i].name, names[i]) == 0);
            CHECK_NEAR(norm[k][i].grad, sqrt(grad), 1e-6 * sqrt(grad));
            CHECK_NEAR(norm[k][i].weight, sqrt(weight), 1e-6 * sqrt(weight));
            if (k == 0) first[i] = norm[0][i];
            CHECK(norm[k][i].grad == first[i].grad && norm[k][i].weight == first[i].weight);
        }
        CHECK_INT(neo_norms_largest(norm[k], PARAMS), 4);
        for (int i = 0; i < 300; i++) gradients(params, 3)[i] = i % 2 ? 3e38f : -3e38f;
        gradients(params, 4)[7] = 1e20f; /* its square is no float */
        REQUIRE_OK(neo_optim_create(ctx, params, &sgd, &optim));
        REQUIRE_OK(neo_optim_norms(optim, norm[k]));
        CHECK_NEAR(norm[k][3].grad, 3e38 * sqrt(300), 1e32);
        CHECK_NEAR(norm[k][4].grad, 1e20, 1e14);
        CHECK_INT(neo_norms_largest(norm[k], PARAMS), 3);
        gradients(params, 0)[0] = -INFINITY, weights(params, 1)[255] = NAN;
        REQUIRE_OK(neo_params_norms(params, norm[k]));
        CHECK(isinf(norm[k][0].grad) && norm[k][0].grad > 0 && isnan(norm[k][1].weight));
        CHECK_INT(neo_norms_largest(norm[k], PARAMS), 0);
        gradients(params, 1)[0] = NAN;
        REQUIRE_OK(neo_params_norms(params, norm[k]));
        CHECK_INT(neo_norms_largest(norm[k], PARAMS), 1);
        CHECK_INT(neo_norms_largest(norm[k], 0), -1);
        CHECK_ERR(neo_params_norms(params, NULL), NEO_ERR_ARG, "norms is NULL");
        CHECK_ERR(neo_optim_norms(NULL, norm[k]), NEO_ERR_ARG, "optim is NULL");
        neo_optim_destroy(optim);
        neo_params_destroy(params);
        neo_ctx_destroy(ctx);
    }
}

/* The tensors of a resumed run: names, shapes, the parameters they belong to, and their numbers,
   which the other of two optimizers goes on with. */
static void state_tensors(void) {
    static const char *const kinds[2] = {"exp_avg", "exp_avg_sq"};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params[2] = {make_params(ctx), make_params(ctx)};
    neo_optim_desc d = {.kind = NEO_OPTIM_ADAM};
    neo_optim *optim[2] = {NULL, NULL};
    char want[64];
    for (int k = 0; k < 2; k++) REQUIRE_OK(neo_optim_create(ctx, params[k], &d, &optim[k]));
    new_gradients(params[0], 3);
    CHECK_OK(neo_optim_step(optim[0], 0.1f));
    CHECK_INT(neo_optim_state_count(optim[0]), 2 * PARAMS + 1);
    for (int i = 0; i <= 2 * PARAMS; i++) {
        const char *name = NULL, *other = NULL;
        int param = 7;
        const neo_tensor from = neo_optim_state_at(optim[0], i, &name, &param),
                         to = neo_optim_state_at(optim[1], i, &other, NULL);
        snprintf(want, sizeof want, "optim.%s.%s", names[i / 2 % PARAMS], kinds[i % 2]);
        CHECK(strcmp(name, i < 2 * PARAMS ? want : "optim.step") == 0);
        CHECK(strcmp(name, other) == 0);
        CHECK_INT(param, i < 2 * PARAMS ? i / 2 : -1);
        CHECK_INT(neo_tensor_count(from), i < 2 * PARAMS ? sizes[i / 2] : 1);
        CHECK(from.dtype == (i < 2 * PARAMS ? NEO_F32 : NEO_I64));
        if (neo_tensor_bytes(from)) memcpy(to.data, from.data, neo_tensor_bytes(from));
    }
    for (int i = 0; i < PARAMS; i++)
        if (sizes[i]) memcpy(weights(params[1], i), weights(params[0], i), (size_t)sizes[i] * 4);
    CHECK_INT(neo_optim_step_count(optim[1]), 1);
    for (int k = 0; k < 2; k++) new_gradients(params[k], 4);
    for (int k = 0; k < 2; k++) CHECK_OK(neo_optim_step(optim[k], 0.1f));
    for (int i = 0; i < PARAMS; i++)
        CHECK_BITS(weights(params[1], i), weights(params[0], i), (size_t)sizes[i] * 4);
    const char *none = "x";
    CHECK(!neo_optim_state_at(optim[0], 2 * PARAMS + 1, &none, NULL).data && !none);
    CHECK(!neo_optim_state_at(optim[0], -1, &none, NULL).data);
    for (int k = 0; k < 2; k++) neo_optim_destroy(optim[k]), neo_params_destroy(params[k]);
    neo_ctx_destroy(ctx);
}
/* Histograms have each number once, but those of a parameter that another rank counts, as its norm
   does. */
static void counted_once(void) {
    static neo_histogram weight[PARAMS], grad[PARAMS];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = make_params(ctx);
    neo_optim_desc d = {.kind = NEO_OPTIM_SGD, .clip_norm = 1e6f};
    neo_optim *optim = NULL;
    double sum = 0;
    REQUIRE_OK(neo_optim_create(ctx, params, &d, &optim));
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        new_gradients(params, 9);
        gradients(params, 3)[5] = NAN;
        CHECK_OK(neo_optim_histograms(optim, weight, grad));
        for (int i = 0; i < PARAMS; i++) {
            int64_t all[2] = {grad[i].non_finite, weight[i].non_finite};
            double squares = 0;
            for (int64_t k = 0; k < sizes[i]; k++)
                squares += (double)weights(params, i)[k] * (double)weights(params, i)[k];
            for (int k = 0; k < NEO_HISTOGRAM_BUCKETS; k++)
                all[0] += grad[i].bucket[k], all[1] += weight[i].bucket[k];
            const int counts = !(elsewhere && i == 4);
            CHECK(all[0] == counts * sizes[i] && all[1] == counts * sizes[i]);
            CHECK_INT(grad[i].non_finite, i == 3);
            CHECK_NEAR(neo_exact_value(&weight[i].squares), counts * squares, 1e-4 * squares);
        }
        gradients(params, 3)[5] = 0;
        sum = 0;
        for (int i = 0; i < PARAMS - elsewhere; i++)
            for (int64_t k = 0; k < sizes[i]; k++)
                sum += (double)gradients(params, i)[k] * (double)gradients(params, i)[k];
        CHECK_OK(neo_optim_step(optim, 0));
        CHECK_NEAR(neo_optim_grad_norm(optim), sqrt(sum), 1e-4);
        neo_optim_count_elsewhere(optim, 4);
    }
    CHECK_ERR(neo_optim_histograms(optim, NULL, grad), NEO_ERR_ARG, "weights or grads is NULL");
    neo_optim_destroy(optim);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(params_are_named_padded_and_found);
    RUN(state_tensors);
    RUN(counted_once);
    RUN(steps_equal_the_reference);
    RUN(ftrl_is_the_papers);
    RUN(same_bits_everywhere);
    RUN(memory_is_predicted_and_steps_allocate_nothing);
    RUN(lamb_with_zero_norms);
    RUN(squares_of_others_are_in_the_norm);
    RUN(not_finite_norms_change_nothing);
    RUN(norms_of_parameters);
    RUN(early_steps);
    RUN(early_steps_that_fail);
    RUN(numbers_of_any_size);
    RUN(refusals);
    RUN(schedules);
    return test_end("core/optim");
}
