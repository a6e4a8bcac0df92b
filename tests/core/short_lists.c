/* short_lists.c: work that is too short for a second thread, on three. In tests others take part in
   the shortest (checked.h), in programs they do not: here neo decides as there. Method: layers and
   products below and above what is shared, with ragged sizes and 1 and 5 leaves: bits as on one
   thread, and an executor is asked only for what is long enough. */
#undef NEO__WORK_SHARED
#define NEO_STATIC /* as in private.c */
#include "neo_state.h"

#include "test.h"

enum { SIDE = 512 * 40, RESULTS = 6 };
typedef struct results {
    float of[RESULTS][SIDE];
} results;
static int lists;
static void counted(int64_t count, neo_task_fn task, void *arg, void *user) {
    (void)user;
    lists++;
    for (int64_t i = count - 1; i >= 0; i--) task(arg, i, (int)(i % 3));
}
static neo_ctx *context(int threads, int leaves, int counts) {
    neo_ctx_desc d = {.threads = threads, .repro_shards = leaves};
    neo_ctx *ctx = NULL;
    if (counts) d.executor.run = counted;
    CHECK_OK(neo_ctx_create(&d, &ctx));
    return ctx;
}
/* y, dx, dw, db of a layer [n][in] -> [n][out], a transposed product, and the sum of its rows. */
static void run(neo_ctx *ctx, int64_t n, int64_t in, int64_t out, results *r) {
    static float x[SIDE], w[SIDE], dz[SIDE], bias[512];
    neo_tensor none = neo_tensor_none(), t[4] = {neo_tensor_2d(x, NEO_F32, n, in),
                                                 neo_tensor_2d(w, NEO_F32, out, in),
                                                 neo_tensor_2d(dz, NEO_F32, n, out),
                                                 neo_tensor_1d(bias, NEO_F32, out)};
    test_seed = 7;
    test_fill(x, SIDE), test_fill(w, SIDE), test_fill(dz, SIDE), test_fill(bias, 512);
    memset(r, 0, sizeof *r);
    CHECK_OK(neo_linear_forward(ctx, t[0], t[1], t[3], NEO_ACT_RELU,
                                neo_tensor_2d(r->of[0], NEO_F32, n, out)));
    CHECK_OK(neo_linear_backward(ctx, NULL, t[0], t[1], t[2],
                                 neo_tensor_2d(r->of[1], NEO_F32, n, in),
                                 neo_tensor_2d(r->of[2], NEO_F32, out, in),
                                 neo_tensor_1d(r->of[3], NEO_F32, out)));
    CHECK_OK(neo_linear_backward(ctx, NULL, t[0], t[1], t[2], none, none,
                                 neo_tensor_1d(r->of[4], NEO_F32, out)));
    memcpy(r->of[5], w, sizeof r->of[5]);
    CHECK_OK(neo_gemm(ctx, &(neo_gemm_desc){.trans_a = 1, .beta = 0.5f}, t[2], t[0],
                      neo_tensor_2d(r->of[5], NEO_F32, out, in)));
}
static void same_bits(void) {
    static const struct {
        int n, in, out, shared;
    } sizes[] = {{1, 1, 1, 0},    {5, 7, 3, 0},     {33, 13, 14, 0}, {64, 40, 1, 0},
                 {100, 1, 65, 0}, {128, 13, 30, 0}, {70, 37, 31, 1}, {128, 64, 32, 1},
                 {500, 40, 33, 1}};
    static results one, three, asked;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int leaves = 1; leaves <= 5; leaves += 4) {
            neo_ctx *a = context(1, leaves, 0), *b = context(3, leaves, 0),
                    *c = context(3, leaves, 1);
            const int64_t n = sizes[i].n, in = sizes[i].in, out = sizes[i].out;
            run(a, n, in, out, &one);
            for (int again = 0; again < 20; again++) {
                run(b, n, in, out, &three);
                CHECK_BITS(&three, &one, sizeof one);
            }
            lists = 0;
            run(c, n, in, out, &asked);
            CHECK_BITS(&asked, &one, sizeof one);
            if ((lists > 0) != sizes[i].shared)
                FAIL("%d x %d -> %d: %d lists are shared", (int)n, (int)in, (int)out, lists);
            neo_ctx_destroy(a), neo_ctx_destroy(b), neo_ctx_destroy(c);
        }
}

int main(void) {
    RUN(same_bits);
    return test_end("core/short_lists");
}
