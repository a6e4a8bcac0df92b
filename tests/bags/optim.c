/* optim.c: the optimizers of embedding bags.

   Every pooling x per-id weights x optimizer x decay mode against a naive double reference that
   builds the dense gradient (so duplicates are merged before the optimizer) and steps the touched
   rows; options one by one; untouched rows keep their bits; row-wise Adagrad against its documented
   f32 arithmetic, bit by bit. */
#include "common.h"

/* ---- the reference: one row, in double ---- */
typedef struct Row {
    double *w, *m, *v; /* m, v: [dim], or [1] where the optimizer keeps one float per row */
    int64_t dim;
} Row;
static double dot(const double *x, const double *y, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}
static double defaulted(double x, double value) { return x == 0 ? value : x < 0 ? 0 : x; }

static void adam_direction(const neo_bag_optim *o, Row r, const double *g, double *u, int64_t t,
                           int partial) {
    double b1 = defaulted(o->beta1, 0.9), b2 = defaulted(o->beta2, 0.999),
           eps = defaulted((double)o->eps, 1e-8);
    double fix1 = 1 - pow(b1, (double)t), fix2 = 1 - pow(b2, (double)t);
    if (partial) *r.v = b2 * *r.v + (1 - b2) * dot(g, g, r.dim) / (double)r.dim;
    for (int64_t d = 0; d < r.dim; d++) {
        r.m[d] = b1 * r.m[d] + (1 - b1) * g[d];
        if (!partial) r.v[d] = b2 * r.v[d] + (1 - b2) * g[d] * g[d];
        u[d] = r.m[d] / fix1 / (sqrt(r.v[partial ? 0 : d] / fix2) + eps);
    }
}
/* Algorithm 1 of the paper, whose z is got from what is kept, and back. */
static double ftrl_step(const neo_bag_optim *o, double w, double g, double *n, double *v,
                        double alpha) {
    double beta = (double)o->eps, l1 = (double)o->l1, l2 = (double)o->weight_decay, old = sqrt(*n);
    double z = *v - w * (beta + old) / alpha;
    *n += g * g;
    z += g - (sqrt(*n) - old) / alpha * w;
    w = fabs(z) <= l1 ? 0 : -(z - (z < 0 ? -l1 : l1)) / ((beta + sqrt(*n)) / alpha + l2);
    *v = z + w * (beta + sqrt(*n)) / alpha;
    return w;
}
static void row_step(const neo_bag_optim *o, Row r, double *g, double lr, int64_t t) {
    int64_t n = r.dim;
    double u[512], wd = (double)o->weight_decay, eps = defaulted((double)o->eps, 1e-8);
    lr *= defaulted((double)o->lr_scale, 1);
    for (int64_t d = 0; d < n; d++) {
        if (o->clip_gradient > 0)
            g[d] = fmax(-(double)o->clip_gradient, fmin((double)o->clip_gradient, g[d]));
        if (o->decay == NEO_DECAY_L2) g[d] += wd * r.w[d];
        if (o->decay == NEO_DECAY_DECOUPLED) r.w[d] -= lr * wd * r.w[d];
    }
    switch (o->kind) {
    case NEO_BAG_SGD:
        for (int64_t d = 0; d < n; d++) r.w[d] -= lr * g[d];
        break;
    case NEO_BAG_ADAGRAD:
        for (int64_t d = 0; d < n; d++) {
            r.m[d] += g[d] * g[d];
            r.w[d] -= lr * g[d] / (sqrt(r.m[d]) + eps);
        }
        break;
    case NEO_BAG_ROWWISE_ADAGRAD:
        *r.m += dot(g, g, n) / (double)n;
        for (int64_t d = 0; d < n; d++) r.w[d] -= lr * g[d] / (sqrt(*r.m) + eps);
        break;
    case NEO_BAG_ADAM:
    case NEO_BAG_PARTIAL_ADAM:
        adam_direction(o, r, g, u, t, o->kind == NEO_BAG_PARTIAL_ADAM);
        for (int64_t d = 0; d < n; d++) r.w[d] -= lr * u[d];
        break;
    case NEO_BAG_LAMB:
    case NEO_BAG_PARTIAL_LAMB:
        adam_direction(o, r, g, u, t, o->kind == NEO_BAG_PARTIAL_LAMB);
        for (int64_t d = 0; d < n; d++) u[d] += wd * r.w[d];
        double wn = sqrt(dot(r.w, r.w, n)), un = sqrt(dot(u, u, n)),
               ratio = wn > 0 && un > 0 ? wn / un : 1;
        for (int64_t d = 0; d < n; d++) r.w[d] -= lr * ratio * u[d];
        break;
    case NEO_BAG_LARS_SGD: {
        double norm = sqrt(dot(r.w, r.w, n)), below = sqrt(dot(g, g, n)) + wd * norm;
        double a = below > 0 ? lr * defaulted((double)o->eta, 0.001) * norm / below : 0;
        for (int64_t d = 0; d < n; d++) {
            r.m[d] = (double)o->momentum * r.m[d] + a * (g[d] + wd * r.w[d]);
            r.w[d] -= r.m[d];
        }
        break;
    }
    case NEO_BAG_FTRL:
        for (int64_t d = 0; d < n; d++) r.w[d] = ftrl_step(o, r.w[d], g[d], &r.m[d], &r.v[d], lr);
        break;
    case NEO_BAG_OPTIM_COUNT: break;
    }
    double norm = sqrt(dot(r.w, r.w, n));
    if (o->max_norm > 0 && norm > (double)o->max_norm)
        for (int64_t d = 0; d < n; d++) r.w[d] *= (double)o->max_norm / norm;
}

/* ---- a table against it ---- */
static double *to_double(neo_tensor t) {
    int64_t n = t.data ? neo_tensor_count(t) : 0;
    double *x = malloc(sizeof *x * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) x[i] = (double)((const float *)t.data)[i];
    return x;
}
static void check_tensor(const char *what, neo_tensor t, const double *want, double tolerance) {
    for (int64_t i = 0; t.data && i < neo_tensor_count(t); i++) {
        double got = (double)((const float *)t.data)[i];
        if (!(fabs(got - want[i]) <= tolerance * (1 + fabs(want[i]))))
            FAIL("%s[%d] is %.9g, expected %.9g", what, (int)i, got, want[i]);
    }
}
static void check_untouched(neo_tensor t, const float *before, const char *touched, int64_t rows) {
    int64_t dim = t.data ? neo_tensor_count(t) / rows : 0;
    for (int64_t r = 0; dim && r < rows; r++)
        if (!touched[r])
            CHECK_BITS((float *)t.data + r * dim, before + r * dim, sizeof(float) * (size_t)dim);
}
static float *copy_of(neo_tensor t) {
    size_t bytes = t.data ? neo_tensor_bytes(t) : 0;
    float *p = malloc(bytes + 1);
    if (bytes) memcpy(p, t.data, bytes);
    return p;
}

/* Three steps; after each, weights and state must be the reference's (which goes on from neo's
   values, so that errors do not pile up). */
static void run_optim(const Model *m, BatchKind kind, int threads) {
    neo_ctx *ctx = test_ctx(threads, NEO_ISA_BEST, 2);
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m->desc, &bags));
    for (int step = 1; step <= 3; step++) {
        Batch b;
        batch_make(&b, m, kind);
        Out dout;
        out_make(&dout, m, &b.j, 0);
        double *w[MAX_TABLES], *s0[MAX_TABLES], *s1[MAX_TABLES];
        float *old[MAX_TABLES][3];
        for (int t = 0; t < m->desc.table_count; t++) {
            neo_tensor x[3] = {neo_bags_weight(bags, t), neo_bags_state(bags, t, 0),
                               neo_bags_state(bags, t, 1)};
            w[t] = to_double(x[0]);
            s0[t] = to_double(x[1]);
            s1[t] = to_double(x[2]);
            for (int i = 0; i < 3; i++) old[t][i] = copy_of(x[i]);
        }
        CHECK_OK(neo_bags_backward(bags, &b.j, dout.t, 0.05f));
        CHECK_INT(neo_bags_get_stats(bags).steps, step);
        for (int t = 0; t < m->desc.table_count; t++) {
            int64_t rows = m->table[t].rows, dim = m->table[t].dim;
            neo_tensor x[3] = {neo_bags_weight(bags, t), neo_bags_state(bags, t, 0),
                               neo_bags_state(bags, t, 1)};
            char *touched = malloc((size_t)rows);
            double *g = dense_grad(m, t, &b, &dout, touched);
            for (int64_t r = 0; r < rows; r++) {
                Row row = {w[t] + r * dim, s0[t] + r * (x[1].ndim == 1 ? 1 : dim),
                           s1[t] + r * (x[2].ndim == 1 ? 1 : dim), dim};
                if (touched[r]) row_step(&m->table[t].optim, row, g + r * dim, (double)0.05f, step);
            }
            check_tensor("weight", x[0], w[t], 2e-5);
            check_tensor("momentum1", x[1], s0[t], 2e-5);
            check_tensor("momentum2", x[2], s1[t], 2e-5);
            for (int i = 0; i < 3; i++) check_untouched(x[i], old[t][i], touched, rows);
            for (int i = 0; i < 3; i++) free(old[t][i]);
            free(touched);
            free(g);
            free(w[t]);
            free(s0[t]);
            free(s1[t]);
        }
        free(dout.data);
        batch_free(&b);
    }
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

static const int64_t some_rows[] = {40, 12, 90}, some_dims[] = {16, 5, 67},
                     equal_dims[] = {21, 21, 21}, one_dims[] = {1, 16, 67};

/* Gradients of the values here can be near zero, where g / (sqrt(g^2) + eps) turns on the last bit
   of g: eps keeps the comparison well-conditioned, the default has tests of its own. */
static void set_optim(Model *m, neo_bag_optim o) {
    for (int t = 0; t < m->desc.table_count; t++) {
        m->table[t].optim = o;
        m->table[t].init.kind = NEO_INIT_UNIFORM;
        m->table[t].init.a = -1.0f;
        m->table[t].init.b = 1.0f;
    }
}

static void test_all(void) {
    int n = 0;
    for (int kind = 0; kind < NEO_BAG_OPTIM_COUNT; kind++) {
        int own = kind >= NEO_BAG_LAMB; /* has decay of its own */
        for (int decay = NEO_DECAY_NONE; decay <= (own ? NEO_DECAY_NONE : NEO_DECAY_DECOUPLED);
             decay++) {
            for (int pooling = NEO_POOL_SUM; pooling <= NEO_POOL_NONE; pooling++) {
                for (int weighted = 0; weighted < 2; weighted++, n++) {
                    Model m;
                    model_init(&m, 3, some_rows, pooling == NEO_POOL_NONE ? equal_dims : some_dims,
                               3 + n % 3, (neo_pooling)pooling);
                    neo_bag_optim o = {.kind = (neo_bag_optim_kind)kind,
                                       .decay = (neo_decay)decay,
                                       .weight_decay = own || decay ? 0.1f : 0.0f,
                                       .eps = 0.01f,
                                       .l1 = n % 3 ? 0.5f : 0.0f,
                                       .momentum = 0.9f,
                                       .eta = 0.5f};
                    set_optim(&m, o);
                    BatchKind k = {11, 4, n % 2, weighted, 0, n % 5 == 4};
                    run_optim(&m, k, 1 + n % 2);
                }
            }
        }
    }
}

static void test_options(void) {
    for (int kind = 0; kind < NEO_BAG_OPTIM_COUNT; kind++) {
        for (int option = 0; option < 7; option++) {
            Model m;
            model_init(&m, 3, some_rows, one_dims, 4, NEO_POOL_SUM);
            neo_bag_optim o = {.kind = (neo_bag_optim_kind)kind, .eps = 0.01f, .eta = 0.5f};
            int own = kind >= NEO_BAG_LAMB;
            if (option == 0) o.clip_gradient = 0.3f;
            if (option == 1) o.max_norm = 1.5f;
            if (option == 2) o.lr_scale = 2.5f;
            if (option == 3) o.initial_accumulator = 0.5f;
            if (option == 4) o.beta1 = -1, o.beta2 = 0.5f;
            if (option == 5) o.beta1 = 0.5f, o.beta2 = -1, o.momentum = 0.25f;
            if (option == 6) {
                o.clip_gradient = 0.5f;
                o.max_norm = 1.0f;
                o.weight_decay = 0.2f;
                o.decay = own ? NEO_DECAY_NONE : NEO_DECAY_L2;
            }
            set_optim(&m, o);
            BatchKind k = {11, 4, 0, 0, 0, 0};
            run_optim(&m, k, 2);
        }
    }
}

/* Sums over columns that a step of a cut table asks for: means of squares or norms of a row, LAMB's
   by a mean behind another; the norm that max_norm limits comes last. */
static void test_cut_rounds(void) {
    static const int rounds[NEO_BAG_OPTIM_COUNT] = {0, 0, 1, 0, 1, 1, 2, 1, 0};
    for (int kind = 0; kind < NEO_BAG_OPTIM_COUNT; kind++) {
        neo_bag_optim o = {.kind = (neo_bag_optim_kind)kind};
        CHECK_INT(neo_bag_cut_rounds(&o), rounds[kind]);
        o.max_norm = 1.0f;
        CHECK_INT(neo_bag_cut_rounds(&o), rounds[kind] + 1);
    }
}

/* Each table its own optimizer. */
static void test_per_table(void) {
    int64_t rows[MAX_TABLES], dims[MAX_TABLES];
    for (int t = 0; t < MAX_TABLES; t++) rows[t] = 20 + t, dims[t] = 10 + 3 * t;
    Model m;
    model_init(&m, MAX_TABLES, rows, dims, MAX_FEATURES, NEO_POOL_MEAN);
    for (int t = 0; t < MAX_TABLES; t++) {
        m.table[t].optim.kind = (neo_bag_optim_kind)(t % NEO_BAG_OPTIM_COUNT);
        m.table[t].optim.eps = 0.02f;
        m.table[t].optim.lr_scale = (float)(t + 1);
    }
    BatchKind k = {9, 5, 0, 1, 0, 0};
    run_optim(&m, k, 2);
}

/* The same id twice in a bag is one step of twice the gradient, not two steps. */
static void test_duplicates(void) {
    int64_t rows = 3, dim = 4;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    Model m;
    model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
    m.table[0].optim.kind = NEO_BAG_ADAGRAD;
    m.table[0].init.kind = NEO_INIT_CONSTANT;
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    static const int64_t offsets[] = {0, 2}, ids[] = {1, 1};
    neo_jagged j = {
        .batch = 1, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    float d[4] = {3, -3, 1, 0};
    CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(d, NEO_F32, 1, 4), 1.0f));
    const float *w = (const float *)neo_bags_weight(bags, 0).data;
    const float *s = (const float *)neo_bags_state(bags, 0, 0).data;
    CHECK(s[4] == 36.0f && s[5] == 36.0f && s[6] == 4.0f && s[7] == 0.0f);
    CHECK_NEAR(w[4], -1, 1e-6);
    CHECK_NEAR(w[5], 1, 1e-6);
    CHECK(w[7] == 0.0f && w[0] == 0.0f && s[0] == 0.0f && w[8] == 0.0f);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* A touched row whose gradients cancel is stepped: Adam's moments decay, decoupled decay applies.
   */
static void test_zero_gradient_is_touched(void) {
    int64_t rows = 2, dim = 4;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    Model m;
    model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
    m.table[0].optim.kind = NEO_BAG_SGD;
    m.table[0].optim.decay = NEO_DECAY_DECOUPLED;
    m.table[0].optim.weight_decay = 0.5f;
    m.table[0].init.kind = NEO_INIT_CONSTANT;
    m.table[0].init.a = 1.0f;
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    static const int64_t offsets[] = {0, 1, 2}, ids[] = {1, 1};
    neo_jagged j = {
        .batch = 2, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    float d[8] = {3, -3, 1, 0, -3, 3, -1, 0};
    CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(d, NEO_F32, 2, 4), 1.0f));
    const float *w = (const float *)neo_bags_weight(bags, 0).data;
    for (int i = 0; i < 4; i++) CHECK(w[i] == 1.0f && w[4 + i] == 0.5f);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* LARS and LAMB from zero weights and with zero gradients: finite. LAMB moves, LARS stays by its
   definition. */
static void test_zero_norms(void) {
    static const neo_bag_optim_kind kinds[] = {NEO_BAG_LAMB, NEO_BAG_PARTIAL_LAMB,
                                               NEO_BAG_LARS_SGD};
    for (int i = 0; i < 3; i++) {
        int64_t rows = 3, dim = 20;
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
        m.table[0].optim.kind = kinds[i];
        m.table[0].init.kind = NEO_INIT_CONSTANT;
        neo_bags *bags = NULL;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
        static const int64_t offsets[] = {0, 1, 2}, ids[] = {0, 1};
        neo_jagged j = {
            .batch = 2, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
        float d[40] = {0}, *w = (float *)neo_bags_weight(bags, 0).data;
        for (int k = 20; k < 40; k++) d[k] = 1.0f;
        for (int step = 0; step < 3; step++)
            CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(d, NEO_F32, 2, 20), 0.1f));
        for (int k = 0; k < 20; k++)
            CHECK(w[k] == 0.0f &&
                  (i == 2 ? w[20 + k] == 0.0f : w[20 + k] < 0.0f && w[20 + k] > -1.0f));
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
}

/* The documented shape of a row sum: blocks of 16, each by a tree, in order. */
static float row_sum_of_squares(const float *x, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i += 16) {
        float q[16];
        for (int64_t k = 0; k < 16; k++) q[k] = i + k < n ? x[i + k] * x[i + k] : 0.0f;
        for (int half = 8; half > 0; half /= 2)
            for (int k = 0; k < half; k++) q[k] = q[k] + q[k + half];
        sum += q[0];
    }
    return sum;
}
static void test_rowwise_bits(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static const int64_t dims[] = {1, 3, 16, 17, 64, 100, 128, 300};
    for (int isa = 0; isa < 4; isa++) {
        for (int i = 0; i < 8; i++) {
            if (!neo_isa_available(isas[isa])) continue;
            int64_t rows = 2, dim = dims[i];
            neo_ctx *ctx = test_ctx(1, isas[isa], 1);
            Model m;
            model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
            m.table[0].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
            m.table[0].optim.initial_accumulator = 0.125f;
            neo_bags *bags = NULL;
            REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
            static const int64_t offsets[] = {0, 1}, ids[] = {1};
            neo_jagged j = {.batch = 1,
                            .feature_count = 1,
                            .id_dtype = NEO_I64,
                            .offsets = offsets,
                            .ids = ids};
            float d[300], want[300];
            test_fill(d, dim);
            float *w = (float *)neo_bags_weight(bags, 0).data + dim;
            float s = 0.125f + row_sum_of_squares(d, dim) / (float)dim,
                  rate = 0.1f / (sqrtf(s) + 1e-8f);
            for (int64_t k = 0; k < dim; k++) want[k] = fmaf(-rate, d[k], w[k]);
            CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(d, NEO_F32, 1, dim), 0.1f));
            CHECK_BITS(w, want, sizeof(float) * (size_t)dim);
            CHECK(((float *)neo_bags_state(bags, 0, 0).data)[1] == s);
            neo_bags_destroy(bags);
            neo_ctx_destroy(ctx);
        }
    }
}

/* Batches without ids count as steps and change nothing. */
static void test_empty_steps(void) {
    int64_t rows = 3, dim = 4;
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    Model m;
    model_init(&m, 1, &rows, &dim, 2, NEO_POOL_MEAN);
    m.table[0].optim.kind = NEO_BAG_ADAM;
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    float before[12], d[16] = {0};
    memcpy(before, neo_bags_weight(bags, 0).data, sizeof before);
    static const int64_t offsets[] = {4, 4, 4, 4, 4};
    neo_jagged j = {.batch = 2, .feature_count = 2, .id_dtype = NEO_I64, .offsets = offsets};
    CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(d, NEO_F32, 2, 8), 0.1f));
    neo_jagged none = {.batch = 0, .feature_count = 2, .id_dtype = NEO_I64};
    CHECK_OK(neo_bags_backward(bags, &none, neo_tensor_2d(NULL, NEO_F32, 0, 8), 0.1f));
    CHECK_OK(neo_bags_forward(bags, &none, neo_tensor_2d(NULL, NEO_F32, 0, 8)));
    CHECK_BITS(before, neo_bags_weight(bags, 0).data, sizeof before);
    CHECK_INT(neo_bags_get_stats(bags).steps, 2);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(test_all);
    RUN(test_options);
    RUN(test_per_table);
    RUN(test_cut_rounds);
    RUN(test_duplicates);
    RUN(test_zero_gradient_is_touched);
    RUN(test_zero_norms);
    RUN(test_rowwise_bits);
    RUN(test_empty_steps);
    return test_end("bags/optim");
}
