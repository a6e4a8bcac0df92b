/* The NEO_SGEMM hook: neo_gemm and the layers hand products of at least 2^15 multiply-adds to the
   user's BLAS, with row-major arguments, and add bias and activation themselves. The stand-in here
   is neo's own order of sums, so the bits are those of a build without the hook. */
#define _POSIX_C_SOURCE 200809L
#define NEO_SGEMM hook
#define NEO_STATIC /* as in private_files.c, which declares the hook */
#define NEO_NO_SIMD
#include <math.h>
#include <stdint.h>
static int hook_calls;
static void hook(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    hook_calls++;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = beta != 0.0f ? beta * c[i * ldc + j] : 0.0f;
            for (int64_t p = 0; p < k; p++)
                sum = fmaf(trans_a ? a[p * lda + i] : a[i * lda + p],
                           trans_b ? b[j * ldb + p] : b[p * ldb + j], sum);
            c[i * ldc + j] = sum;
        }
}
#include "test.h"

enum { M = 40, N = 30, K = 50, PAD = 3, SIDE = 64 };
static float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE], start[SIDE * SIDE], want[SIDE * SIDE],
    bias[SIDE];

static neo_tensor pad(float *data, int64_t rows, int64_t cols) {
    neo_tensor t = neo_tensor_2d(data, NEO_F32, rows, cols);
    t.stride[0] = cols + PAD;
    return t;
}

static void products_go_to_the_hook(void) {
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    test_fill(a, SIDE * SIDE), test_fill(b, SIDE * SIDE), test_fill(start, SIDE * SIDE),
        test_fill(bias, SIDE);
    for (int variant = 0; variant < 16; variant++) {
        neo_gemm_desc d;
        memset(&d, 0, sizeof d);
        d.trans_a = variant & 1, d.trans_b = variant >> 1 & 1;
        d.beta = variant & 4 ? 0.5f : 0.0f;
        d.bias = variant & 8 ? bias : NULL;
        d.act = variant & 8 ? NEO_ACT_RELU : NEO_ACT_NONE;
        memcpy(c, start, sizeof c), memcpy(want, start, sizeof want);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float *out = &want[i * (N + PAD) + j], sum = d.beta != 0.0f ? d.beta * *out : 0.0f;
                for (int k = 0; k < K; k++)
                    sum = fmaf(d.trans_a ? a[k * (M + PAD) + i] : a[i * (K + PAD) + k],
                               d.trans_b ? b[j * (K + PAD) + k] : b[k * (N + PAD) + j], sum);
                if (d.bias) sum = sum + bias[j];
                *out = d.act == NEO_ACT_RELU && 0.0f > sum ? 0.0f : sum;
            }
        int before = hook_calls;
        CHECK_OK(neo_gemm(ctx, &d, d.trans_a ? pad(a, K, M) : pad(a, M, K),
                          d.trans_b ? pad(b, N, K) : pad(b, K, N), pad(c, M, N)));
        CHECK_INT(hook_calls, before + 1);
        CHECK_BITS(c, want, sizeof c);
    }
    int before = hook_calls;
    CHECK_OK(
        neo_gemm(ctx, NULL, pad(a, 31, 32), pad(b, 32, 33), pad(c, 31, 33))); /* below 2^15 */
    CHECK_INT(hook_calls, before);
    neo_ctx_destroy(ctx);
}

/* A weight gradient in several leaves is summed by neo: a BLAS has no tree. */
static void trees_stay(void) {
    for (int shards = 1; shards <= 2; shards++) {
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, shards);
        int before = hook_calls;
        CHECK_OK(neo_linear_backward(ctx, NULL, pad(a, K, N), pad(b, M, N), pad(c, K, M),
                                     neo_tensor_none(), pad(want, M, N), neo_tensor_none()));
        CHECK_INT(hook_calls - before, shards == 1);
        neo_ctx_destroy(ctx);
    }
}

int main(void) {
    RUN(products_go_to_the_hook);
    RUN(trees_stay);
    return test_end("core/sgemm_hook");
}
