/* attention.cpp: attention of bf16 on tensor cores, a softmax's and SiLU's, against sums in double.

   The reference rounds what the kernels round on their way in (q of f32, times the scale; k, v and
   dy are chosen as bf16), so what is left are the roundings of P and dS to bf16, at most 2^-8 of
   each term, of which the sums of absolute terms are the bound, of results where these are bf16,
   and those of f32 in dP - delta: no tolerance is chosen by hand. The backward is given the
   device's own y and lse. A second run must give the same bits, and so must a sequence in a batch
   of another size or of other lengths.

   Built for the emulation by emulator/kernels.cpp, or by nvcc for a GPU. NEO_EMU_SEED=n: another
   order of blocks and lanes. */
#ifndef NEO_EMU_KERNELS
#define NEO_STATIC
#define NEO__CUDA_WORK_BYTES ((size_t)1 << 16)
#define NEO__CUDA_BLAS_BYTES ((size_t)1 << 20)
#endif
#include "neo_cuda.cuh"
#include "test.h"

#include <memory>
#include <vector>

typedef std::vector<float> floats;
typedef std::vector<int64_t> words;
static neo_device *gpu, *exact_gpu;
static int halves; /* q, k, v, y and the gradients are bf16 in memory, not f32 */
/* Of heads of bf16 in memory. */
static int64_t by_eights(int64_t dim) { return halves ? (dim + 7) / 8 * 8 : dim; }

struct bias_of { /* one table of all heads, or a row of each */
    words bounds;
    bool times, one;
};
struct shape {
    int64_t length, heads, dim, sequences;
    int causal;
    float scale, size; /* size: of the largest q */
    int silu = 0;
    double divisor = 1;                /* of SiLU */
    words offsets = {};                /* of a jagged batch */
    std::vector<bias_of> biases = {};
    int64_t rows() const { return offsets.empty() ? sequences * length : offsets.back() + 3; }
};
/* Rows of q, k, v and their gradients lie in one matrix, as a GPT has them, with a gap. */
struct operands {
    shape of;
    int64_t rows, cols, row;
    floats qkv, y, lse, dy, dqkv;
    std::vector<floats> table, each; /* of the biases */
    words times, asked;
    explicit operands(const shape &s) : of(s) {
        rows = s.rows(), cols = s.heads * s.dim, row = 3 * cols + 8;
        qkv.resize((size_t)(rows * row)), dy.resize((size_t)(rows * cols));
        for (float &x : qkv) x = narrow(test_uniform());
        for (float &x : dy) x = narrow(test_uniform());
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) qkv[(size_t)(i * row + j)] *= s.size;
        for (const bias_of &b : s.biases) {
            table.push_back(floats((b.bounds.size() + 1) * (size_t)(b.one ? 1 : s.heads)));
            for (float &x : table.back()) x = 2.0f * test_uniform();
        }
        for (int64_t i = 0, now = -5; !s.biases.empty() && i < rows; i++) {
            times.push_back(now += (int64_t)(30.0f * fabsf(test_uniform())));
            asked.push_back(now + i % 3);
        }
        clear(7.0f);
    }
    int64_t bucket(size_t b, int64_t row0, int64_t i, int64_t j) const {
        const size_t query = (size_t)(row0 + i), key = (size_t)(row0 + j);
        const int64_t far = asked.empty() ? 0 : asked[query] - times[key];
        int64_t found = 0;
        for (int64_t bound : of.biases[b].bounds)
            found += bound <= (of.biases[b].times ? far : i - j);
        return found;
    }
    double biased(int64_t head, int64_t row0, int64_t i, int64_t j) const {
        double sum = 0;
        for (size_t b = 0; b < of.biases.size(); b++)
            sum += (double)table[b][(size_t)bucket(b, row0, i, j) +
                                    (of.biases[b].one ? 0 : (size_t)head) *
                                        (of.biases[b].bounds.size() + 1)];
        return sum;
    }
    static float narrow(float x) { return neo__f32_from_bf16(neo__bf16_from_f32(x)); }
    void clear(float with) {
        y.assign((size_t)(rows * cols), with), lse.assign((size_t)(rows * of.heads), with);
        dqkv.assign(qkv.size(), with), each.clear();
        for (const bias_of &b : of.biases)
            each.push_back(floats((size_t)(of.sequences * of.heads) * (b.bounds.size() + 1), with));
    }
    const float *at(const floats &x, int which, int64_t i) const {
        return x.data() + i * row + which * cols;
    }
};

/* An array on the device for the length of a scope. */
struct there {
    floats &host;
    float *p;
    explicit there(floats &x) : host(x) {
        p = (float *)gpu->alloc(gpu, x.size() * sizeof *p);
        if (!p || gpu->copy(gpu, p, NEO_DEVICE, x.data(), NEO_HOST, x.size() * sizeof *p) != NEO_OK)
            abort();
    }
    void back() { CHECK_OK(gpu->copy(gpu, host.data(), NEO_HOST, p, NEO_DEVICE, bytes())); }
    size_t bytes() const { return host.size() * sizeof *p; }
    ~there() { gpu->free(gpu, p, bytes()); }
};
/* 8-byte words on the device. */
struct words_there {
    floats copy;
    std::unique_ptr<there> all;
    explicit words_there(const words &x) : copy(2 * x.size() + 1) {
        if (!x.empty()) memcpy(copy.data(), x.data(), x.size() * sizeof x[0]);
        all.reset(new there(copy));
    }
    const int64_t *at() const { return (const int64_t *)(const void *)all->p; }
};
/* Biases as a call has them. */
struct biases_there {
    std::vector<std::unique_ptr<words_there>> bounds;
    std::vector<std::unique_ptr<there>> table, each;
    words_there times, asked;
    explicit biases_there(operands *o) : times(o->times), asked(o->asked) {
        for (size_t b = 0; b < o->table.size(); b++) {
            bounds.emplace_back(new words_there(o->of.biases[b].bounds));
            table.emplace_back(new there(o->table[b])), each.emplace_back(new there(o->each[b]));
        }
    }
    void put(neo__attention_call &c, const shape &of) const {
        c.biases = (int)table.size();
        for (size_t b = 0; b < table.size(); b++) {
            neo__attention_bias &to = c.bias[b];
            to.buckets = (int64_t)of.biases[b].bounds.size() + 1;
            to.table = table[b]->p, to.each = each[b]->p, to.bounds = bounds[b]->at();
            to.table_row = of.biases[b].one ? 0 : to.buckets;
            if (of.biases[b].times) to.times = times.at(), to.asked = asked.at();
        }
    }
};
enum { DQ = 1, DK = 2, DV = 4, ALL = 7 };
/* Numbers as bf16, in the first half of the array's memory; and back. */
static void pack(floats &x) {
    uint16_t *to = (uint16_t *)(void *)x.data();
    for (size_t i = 0; i < x.size(); i++) to[i] = neo__bf16_from_f32(x[i]);
}
static void unpack(floats &x) {
    const uint16_t *from = (const uint16_t *)(const void *)x.data();
    for (size_t i = x.size(); i-- > 0;) x[i] = neo__f32_from_bf16(from[i]);
}
/* Forward, then backward for the gradients in `which`. */
static void run(neo_device *device, operands *o, int which, int narrow) {
    floats *const all[] = {&o->qkv, &o->y, &o->dy, &o->dqkv};
    for (floats *x : all)
        if (halves) pack(*x);
    there qkv(o->qkv), y(o->y), lse(o->lse), dy(o->dy), dqkv(o->dqkv);
    words_there offsets(o->of.offsets);
    biases_there biases(o);
    CHECK_OK(gpu->synchronize(gpu)); /* device may have a stream of its own */
    NEO__ZERO(neo__attention_call, c);
    c.causal = o->of.causal, c.narrow = narrow, c.scale = o->of.scale;
    c.length = c.queries = o->of.length, c.heads = o->of.heads, c.dim = o->of.dim;
    c.sequences = o->of.sequences, c.rows = o->rows, c.silu = o->of.silu;
    c.share = (float)(1 / o->of.divisor), c.slope = (float)((double)c.scale / o->of.divisor);
    if (!o->of.offsets.empty()) c.offsets = offsets.at();
    biases.put(c, o->of);
    const int64_t apart = halves ? o->cols / 2 : o->cols; /* in floats */
    c.q = qkv.p, c.k = qkv.p + apart, c.v = qkv.p + 2 * apart, c.y = y.p;
    c.lse = c.silu ? NULL : lse.p;
    c.q_row = c.k_row = c.v_row = c.dq_row = c.dk_row = c.dv_row = o->row;
    c.y_row = c.dy_row = o->cols, c.lse_row = o->of.heads;
    c.narrow_y = halves;
    CHECK_OK(device->attention(device, &c));
    c.backward = 1, c.dy = dy.p;
    if (c.silu) c.y = NULL;
    if (which & DQ) c.dq = dqkv.p;
    if (which & DK) c.dk = dqkv.p + apart;
    if (which & DV) c.dv = dqkv.p + 2 * apart;
    CHECK_OK(device->attention(device, &c));
    CHECK_OK(device->synchronize(device));
    y.back(), lse.back(), dqkv.back();
    for (auto &e : biases.each) e->back();
    for (floats *x : all)
        if (halves) unpack(*x);
}

static double worst; /* share of its bound that a difference took */
static void compare(const char *what, const operands &o, int64_t i, int64_t j, double got,
                    double want, double terms) {
    const double error = terms / 256, rounded = halves ? (fabs(want) + error) / 256 : 0;
    const double bound = error + rounded + 1e-6;
    const double share = fabs(got - want) / bound;
    if (!(share <= worst)) worst = share;
    if (!(share <= 1.0))
        FAIL("%s[%d][%d] is %.9g, not %.9g within %.3g: %d heads of %d, length %d, causal %d", what,
             (int)i, (int)j, got, want, bound, (int)o.of.heads, (int)o.of.dim, (int)o.of.length,
             o.of.causal);
}
/* One head of one sequence, of which q is column block `col` and row0 the first row of T. */
static void check_head(const operands &o, int64_t sequence, int64_t row0, int64_t T,
                       int64_t head) {
    const int64_t D = o.of.dim, col = head * D;
    const bool silu = o.of.silu != 0;
    const double log2_e = 1.4426950408889634;
    const float unit = o.of.scale * NEO__LOG2_E;
    std::vector<double> s((size_t)(T * T)), p, ds, slack; /* slack: of f32 in ds */
    const auto q = [&](int64_t i, int64_t d) {
        const float x = o.at(o.qkv, 0, row0 + i)[col + d];
        if (halves) return (double)x * (double)o.of.scale;
        return (double)operands::narrow(x * unit) / log2_e;
    };
    const auto k = [&](int64_t j, int64_t d) { return (double)o.at(o.qkv, 1, row0 + j)[col + d]; };
    const auto v = [&](int64_t j, int64_t d) { return (double)o.at(o.qkv, 2, row0 + j)[col + d]; };
    const auto at = [&](const floats &x, int64_t i, int64_t d) {
        return (double)x[(size_t)((row0 + i) * o.cols + col + d)];
    };
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; j < T; j++)
            for (int64_t d = 0; d < D; d++) s[(size_t)(i * T + j)] += q(i, d) * k(j, d);
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; j < T; j++) s[(size_t)(i * T + j)] += o.biased(head, row0, i, j);
    p = ds = slack = s;
    const auto weight = [&](double x, double lse) {
        return silu ? x / (1 + exp(-x)) / o.of.divisor : exp(x - lse);
    };
    for (int64_t i = 0; i < T; i++) {
        const int64_t n = o.of.causal ? i + 1 : T;
        const double lse = (double)o.lse[(size_t)((row0 + i) * o.of.heads + head)];
        double sum = 0, most = -1e300, delta = 0;
        for (int64_t j = 0; j < n; j++) most = fmax(most, s[(size_t)(i * T + j)]);
        for (int64_t j = 0; j < n; j++) sum += exp(s[(size_t)(i * T + j)] - most);
        const double want = most + log(sum);
        if (!silu && !(fabs(lse - want) <= 1e-5 * (1 + fabs(want))))
            FAIL("lse[%d] is %.9g, not %.9g", (int)i, lse, want);
        for (int64_t d = 0; d < D; d++) {
            double y = 0, terms = 0;
            for (int64_t j = 0; j < n; j++) {
                const double term = weight(s[(size_t)(i * T + j)], want) * v(j, d);
                y += term, terms += fabs(term);
            }
            compare("y", o, i, d, at(o.y, i, d), y, terms);
            delta += at(o.dy, i, d) * at(o.y, i, d);
        }
        for (int64_t j = 0; j < T; j++) {
            double dp = 0, size = 0;
            for (int64_t d = 0; d < D; d++) {
                dp += at(o.dy, i, d) * v(j, d);
                size += fabs(at(o.dy, i, d)) * (fabs(v(j, d)) + fabs(at(o.y, i, d)));
            }
            const double x = s[(size_t)(i * T + j)], gate = 1 / (1 + exp(-x));
            const double slope = gate * (1 + x * (1 - gate)) / o.of.divisor;
            double *here = &p[(size_t)(i * T + j)], from = 0;
            *here = j < n ? weight(x, lse) : 0.0;
            if (silu && j < n) from = (fabs(slope) + 1 / o.of.divisor) * size;
            ds[(size_t)(i * T + j)] = silu ? (j < n ? slope * dp : 0.0) : *here * (dp - delta);
            if (!silu) from = *here * size;
            slack[(size_t)(i * T + j)] = from * 0x1p-11; /* over 256: 2^-19 */
        }
    }
    /* Gradients of biases: dS is not rounded. */
    for (size_t b = 0; b < o.of.biases.size(); b++) {
        const size_t buckets = o.of.biases[b].bounds.size() + 1;
        std::vector<double> sum(buckets), terms(buckets);
        for (int64_t i = 0; i < T; i++)
            for (int64_t j = 0; j < (o.of.causal ? i + 1 : T); j++) {
                const size_t in = (size_t)o.bucket(b, row0, i, j), here = (size_t)(i * T + j);
                sum[in] += ds[here];
                terms[in] += slack[here];
            }
        for (size_t n = 0; n < buckets; n++)
            compare("each", o, (int64_t)b, (int64_t)n,
                    (double)o.each[b][((size_t)(sequence * o.of.heads + head)) * buckets + n],
                    sum[n], terms[n]);
    }
    for (int64_t i = 0; i < T; i++)
        for (int64_t d = 0; d < D; d++) {
            double sum[3] = {0, 0, 0}, terms[3] = {0, 0, 0};
            for (int64_t j = 0; j < T; j++) {
                const double term[3] = {ds[(size_t)(i * T + j)] * k(j, d) * (double)o.of.scale,
                                        ds[(size_t)(j * T + i)] * q(j, d),
                                        p[(size_t)(j * T + i)] * at(o.dy, j, d)};
                for (int w = 0; w < 3; w++) sum[w] += term[w], terms[w] += fabs(term[w]);
                terms[0] += slack[(size_t)(i * T + j)] * fabs(k(j, d) * (double)o.of.scale);
                terms[1] += slack[(size_t)(j * T + i)] * fabs(q(j, d));
            }
            static const char *const name[] = {"dq", "dk", "dv"};
            for (int w = 0; w < 3; w++)
                compare(name[w], o, i, d, (double)o.at(o.dqkv, w, row0 + i)[col + d], sum[w],
                        terms[w]);
        }
}
static void same_bits(const char *what, const floats &a, const floats &b) {
    if (memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) FAIL("%s: other bits", what);
}
static void check(const shape &s) {
    operands o(s);
    const uint64_t before = neo_cuda_get_stats(gpu).wide_attention;
    run(gpu, &o, ALL, 1);
    CHECK_INT(neo_cuda_get_stats(gpu).wide_attention, before);
    for (int64_t b = 0; b < s.sequences; b++) {
        const int64_t row0 = s.offsets.empty() ? b * s.length : s.offsets[(size_t)b];
        const int64_t T = s.offsets.empty() ? s.length : s.offsets[(size_t)b + 1] - row0;
        for (int64_t h = 0; h < s.heads; h++) check_head(o, b, row0, T, h);
    }
    for (int64_t i = 0; i < o.rows; i++)
        for (int64_t j = 3 * o.cols; j < o.row; j++)
            CHECK(o.dqkv[(size_t)(i * o.row + j)] == 7.0f); /* the gap */
}
static void test_shapes() {
    const int64_t lengths[] = {1, 5, 17, 64, 65}, dims[] = {64, 32, 128, 4, 36, 96};
    for (int i = 0; i < 5; i++)
        for (int causal = 0; causal < 2; causal++)
            check({lengths[i], 1 + i % 2, by_eights(dims[(i + 3 * causal) % 6]),
                   1 + (int64_t)(i % 3 == 0), causal, 0.125f, 3.0f});
    for (int i = 0; i < 3; i++) check({130 + i, 1, dims[i], 1, i != 1, 0.2f, 2.0f});
    check({70, 1, 64, 1, 1, -0.3f, 2.0f}); /* a scale below 0 */
    check({70, 1, 32, 1, 1, 1.0f, 60.0f}); /* weights of nearly 0 and 1 */
#if !defined(NEO_CUDA_ON_CPU)
    for (int causal = 0; causal < 2; causal++)
        for (int i = 0; i < 3; i++) check({1024, 2, dims[i], 1, causal, 0.125f, 3.0f});
#endif
    printf("# the largest difference is %.2f of its bound\n", worst);
}
static void test_silu() {
    const int64_t lengths[] = {1, 5, 17, 64, 65, 130}, dims[] = {64, 32, 128, 4, 36, 96};
    worst = 0;
    for (int i = 0; i < 6; i++)
        for (int causal = 0; causal < 2; causal++)
            check({lengths[i], 1 + i % 2, by_eights(dims[(i + 3 * causal) % 6]),
                   1 + (int64_t)(i % 3 == 0), causal, 0.125f, 3.0f, 1, i % 2 ? 7.0 : 1.0});
    check({70, 1, 64, 1, 1, -0.3f, 2.0f, 1, 70.0}); /* a scale below 0 */
    check({70, 1, 32, 1, 1, 1.0f, 60.0f, 1, 0.5});  /* gates of nearly 0 and 1 */
#if !defined(NEO_CUDA_ON_CPU)
    for (int causal = 0; causal < 2; causal++)
        for (int i = 0; i < 3; i++)
            check({1024, 2, dims[i], 1, causal, 0.125f, 3.0f, 1, 1024.0});
#endif
    printf("# the largest difference is %.2f of its bound\n", worst);
}
/* Scores with one bias or two: by rows, by times, of one bucket, of a table of all heads. */
static void test_biases() {
    const bias_of rows = {{-40, -3, 0, 1, 2, 5, 9, 70}, false, false};
    const bias_of times = {{-900, 0, 1, 7, 7, 30, 100, 1000, 3000}, true, true};
    const bias_of none = {{}, false, true}, late = {{0}, true, false};
    const std::vector<bias_of> sets[] = {{rows}, {times}, {times, rows}, {none, late}};
    const int64_t lengths[] = {1, 17, 65, 130, 200}, dims[] = {64, 8, 36, 32, 60};
    worst = 0;
    for (int i = 0; i < 5; i++)
        for (int way = 0; way < 4; way++)
            check({lengths[i], 1 + way % 2, dims[(i + way) % 5], 1 + (int64_t)(i % 2), way & 1,
                   0.125f, 2.0f, way >> 1, 5.0, {}, sets[(i + way / 2) % 4]});
    for (int way = 0; way < 4; way++)
        check({130, 2, way & 1 ? 64 : 32, 4, way & 1, 0.125f, 2.0f, way >> 1, 9.0,
               {2, 72, 72, 73, 203}, sets[2 - way / 2]});
    printf("# the largest difference is %.2f of its bound\n", worst);
    const uint64_t before = neo_cuda_get_stats(gpu).wide_attention; /* of wider heads f32 */
    operands wide({5, 1, 68, 1, 1, 0.125f, 2.0f, 0, 1.0, {}, sets[0]}), same = wide;
    run(gpu, &wide, ALL, 1), run(exact_gpu, &same, ALL, 0);
    CHECK_INT(neo_cuda_get_stats(gpu).wide_attention - before, 2);
    same_bits("gradients", wide.dqkv, same.dqkv), same_bits("each", wide.each[0], same.each[0]);
}
/* A second run has the same bits. Each gradient alone has those that it has among all; others are
   not written. */
static void test_parts(const shape &s) {
    operands all(s), again = all;
    run(gpu, &all, ALL, 1);
    again.clear(-3.0f);
    run(gpu, &again, ALL, 1);
    same_bits("y of a second run", all.y, again.y);
    if (!s.silu) same_bits("lse", all.lse, again.lse);
    for (size_t b = 0; b < s.biases.size(); b++) same_bits("each", all.each[b], again.each[b]);
    for (int64_t i = 0; i < all.rows; i++)
        CHECK_BITS(all.at(all.dqkv, 0, i), again.at(again.dqkv, 0, i),
                   (size_t)(3 * all.cols) * sizeof(float));
    for (int which = 0; which < ALL; which++) {
        operands o = all;
        o.clear(7.0f);
        run(gpu, &o, which, 1);
        for (int64_t i = 0; i < o.rows; i++)
            for (int64_t j = 0; j < 3 * o.cols; j++) {
                const float want = which >> j / o.cols & 1 ? *(all.at(all.dqkv, 0, i) + j) : 7.0f;
                CHECK(*(o.at(o.dqkv, 0, i) + j) == want);
            }
    }
}
/* A sequence's bits depend on itself alone. */
static void test_batch() {
    operands two({70, 2, 32, 2, 1, 0.2f, 2.0f}), one({70, 2, 32, 1, 1, 0.2f, 2.0f});
    run(gpu, &two, ALL, 1);
    const size_t half = two.qkv.size() / 2;
    one.qkv.assign(two.qkv.begin() + (ptrdiff_t)half, two.qkv.end());
    one.dy.assign(two.dy.begin() + (ptrdiff_t)two.dy.size() / 2, two.dy.end());
    run(gpu, &one, ALL, 1);
    const floats y(two.y.begin() + (ptrdiff_t)two.y.size() / 2, two.y.end());
    same_bits("y in another batch", y, one.y);
    same_bits("gradients in another batch",
              floats(two.dqkv.begin() + (ptrdiff_t)half, two.dqkv.end()), one.dqkv);
}
static void test_parts() {
    test_parts({70, 2, 64, 1, 1, 0.125f, 1.0f}), test_parts({70, 2, 64, 1, 1, 0.125f, 1.0f, 1});
    for (int silu = 0; silu < 2 && !halves; silu++)
        test_parts({70, 2, 64, 1, 1, 0.125f, 1.0f, silu, 3.0, {},
                    {{{1, 3, 9}, false, false}, {{0, 50, 400}, true, true}}});
}
/* Sequences of a jagged batch have the bits that each has alone; other rows are zeros. */
static void test_jagged() {
    for (int silu = 0; silu < 2; silu++)
        for (int64_t dim : {(int64_t)64, (int64_t)32, (int64_t)128}) {
            const int causal = dim != 32;
            const shape s = {130,  2,    dim, 5, causal, 0.125f, 2.0f, silu, 9.0,
                             {2, 72, 72, 73, 203, 236}};
            operands all(s);
            run(gpu, &all, ALL, 1);
            for (int64_t b = 0; b < s.sequences; b++) {
                const int64_t row0 = s.offsets[(size_t)b], T = s.offsets[(size_t)b + 1] - row0;
                if (T == 0) continue;
                operands one({T, 2, dim, 1, causal, 0.125f, 2.0f, silu, 9.0});
                const auto part = [&](const floats &x, int64_t width) {
                    const auto from = x.begin() + (ptrdiff_t)(row0 * width);
                    return floats(from, from + (ptrdiff_t)(T * width));
                };
                one.qkv = part(all.qkv, all.row), one.dy = part(all.dy, all.cols);
                run(gpu, &one, ALL, 1);
                same_bits("y of a sequence", one.y, part(all.y, all.cols));
                same_bits("its lse", one.lse, part(all.lse, 2));
                same_bits("its gradients", one.dqkv, part(all.dqkv, all.row));
            }
            for (int64_t i = 0; i < all.rows; i++) {
                if (i >= s.offsets[0] && i < s.offsets.back()) continue;
                for (int64_t j = 0; j < all.cols; j++)
                    CHECK(all.y[(size_t)(i * all.cols + j)] == 0.0f);
                for (int64_t j = 0; j < all.row; j++)
                    CHECK(*(all.at(all.dqkv, 0, i) + j) == (j < 3 * all.cols ? 0.0f : 7.0f));
                for (int64_t j = 0; j < 2; j++)
                    CHECK(all.lse[(size_t)(i * 2 + j)] == (silu ? 7.0f : 0.0f));
            }
        }
}
/* All of bf16 in memory, and what that does not take. */
static void test_halves() {
    halves = 1, worst = 0;
    test_shapes(), test_silu(), test_parts(), test_batch(), test_jagged();
    check({130, 1, 40, 1, 1, 0.2f, 2.0f}), check({5, 3, 8, 1, 1, -0.3f, 2.0f});
    halves = 0;
    neo__attention_call c = {}; /* rows at other multiples */
    c.narrow = c.narrow_y = 1, c.length = c.queries = 4, c.heads = c.sequences = 1, c.dim = 6;
    c.rows = 4, c.q_row = c.k_row = c.v_row = c.y_row = 6;
    CHECK(gpu->attention(gpu, &c) == NEO_ERR_UNSUPPORTED);
    CHECK(strstr(neo_last_error(), "multiples of 16 bytes") != NULL);
    c.narrow_y = 0, c.length = c.queries = 1, c.heads = 1 << 20, c.sequences = 2048;
    CHECK(gpu->attention(gpu, &c) == NEO_ERR_UNSUPPORTED);
    CHECK(strstr(neo_last_error(), "1048576 heads of 2048 sequences are more than") != NULL);
}
/* Products stay f32, with the bits that they have without bf16: on an exact device, and where rows
   are not multiples of 16 bytes or too wide. */
static void test_f32() {
    const struct { neo_device *device; int64_t dim; int same; } cases[] = {
        {exact_gpu, 64, 1}, {gpu, 6, 1}, {gpu, 132, 1}, {gpu, 64, 0}};
    for (const auto &t : cases)
        for (int silu = 0; silu < 2; silu++) {
            operands a({20, 1, t.dim, 1, 1, 0.2f, 2.0f, silu}), b = a;
            run(t.device, &a, ALL, 0);
            const uint64_t before = neo_cuda_get_stats(t.device).wide_attention;
            run(t.device, &b, ALL, 1);
            CHECK_INT(neo_cuda_get_stats(t.device).wide_attention - before,
                      t.device == gpu && t.same ? 2 : 0); /* forward, backward */
            if ((a.y == b.y) != t.same || (a.dqkv == b.dqkv) != t.same)
                FAIL("a head of %d: y the same %d, gradients %d", (int)t.dim, a.y == b.y,
                     a.dqkv == b.dqkv);
        }
}

int main() {
#ifdef NEO_CUDA_ON_CPU
    const char *seed = getenv("NEO_EMU_SEED");
    neo_emu_set_order(seed ? (uint64_t)strtoull(seed, NULL, 10) : 1);
#endif
    const neo_cuda_desc fast = {0, 0, 0}, exact = {0, 1, 0};
    if (neo_cuda_device_create(&fast, &gpu) != NEO_OK ||
        neo_cuda_device_create(&exact, &exact_gpu) != NEO_OK) {
        printf("cannot make a device: %s\n", neo_last_error());
        return 1;
    }
    if (((neo__cuda *)gpu)->tensor_cores) {
        RUN(test_shapes);
        RUN(test_silu);
        RUN(test_biases);
        RUN(test_parts);
        RUN(test_batch);
        RUN(test_jagged);
        RUN(test_halves);
        RUN(test_f32);
    } else test_report("tensor cores: none on this GPU");
    neo_cuda_device_destroy(gpu);
    neo_cuda_device_destroy(exact_gpu);
    return test_end("cuda/attention");
}
