/* test_emulator.cpp: that cuda_on_cpu.h does what CUDA does, and sees what kernels and their
   callers do wrong.

   The first part uses CUDA only, under many orders. It compiles as CUDA too, which proves the
   signatures, and on a machine with a GPU shows whether the emulation is right: nvcc -x cu
   -std=c++17 -I. tests/cuda/emulator/test_emulator.cpp -lcublasLt The second part is about the
   emulation: errors that must be reported, memory, faults. What must kill a program runs in a child
   process. The last lines say what a thread costs. */
#if defined(__CUDACC__)
#include <cublasLt.h>
#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define NEO__DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(16) unsigned char neo__dynamic[];                                  \
    type *name = reinterpret_cast<type *>(neo__dynamic)
#define NEO__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
#define NEO__KNOW_KERNEL(kernel) ((void)0)
#else
#include "cuda_on_cpu.h"
#define EMULATED 1
#endif

#include "test.h"

#include <algorithm>
#include <vector>
#ifdef EMULATED
#include <sys/wait.h>
#include <unistd.h>
#endif

typedef unsigned long long u64;

#define CUDA_OK(call)                                                                              \
    do {                                                                                           \
        cudaError_t test_e = (call);                                                               \
        if (test_e != cudaSuccess) FAIL("%s: %s", #call, cudaGetErrorName(test_e));                \
    } while (0)
#define CUDA_IS(call, want)                                                                        \
    do {                                                                                           \
        cudaError_t test_e = (call);                                                               \
        if (test_e != (want)) FAIL("%s: %s, expected %s", #call, cudaGetErrorName(test_e), #want); \
        cudaGetLastError();                                                                        \
    } while (0)
#define LT_OK(call) CHECK_INT(call, CUBLAS_STATUS_SUCCESS)

/* Orders that a test is run under. */
#ifdef EMULATED
enum { SEEDS = 12 };
static void set_order(int seed) {
    neo_emu_set_order(seed ? (uint64_t)seed * 7919u + neo_emu_seed() : 0);
}
#else
enum { SEEDS = 1 };
static void set_order(int) {}
#endif
#define FOR_SEEDS                                                                                  \
    for (int seed = 0; seed < SEEDS ? (set_order(seed), true) : (set_order(0), false); seed++)

/* An array on the device, freed at the end of its scope. */
template <class T> struct device {
    T *p = nullptr;
    size_t count;
    explicit device(size_t n) : count(n) {
        CUDA_OK(cudaMalloc(&p, std::max<size_t>(n, 1) * sizeof(T)));
    }
    explicit device(const std::vector<T> &v) : device(v.size()) {
        CUDA_OK(cudaMemcpy(p, v.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    device(const device &) = delete;
    device &operator=(const device &) = delete;
    ~device() { cudaFree(p); }
    std::vector<T> host() const {
        std::vector<T> v(count);
        CUDA_OK(cudaMemcpy(v.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

/* ---- threads and their indices ---- */

__global__ void indices(u64 *out) {
    u64 block = blockIdx.x + (u64)gridDim.x * (blockIdx.y + (u64)gridDim.y * blockIdx.z);
    u64 thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += block << 32 | thread;
}
static void test_indices() {
    dim3 grid(3, 2, 4), block(5, 7, 3);
    size_t per_block = 105, count = 24 * per_block;
    FOR_SEEDS {
        device<u64> out(std::vector<u64>(count, 0));
        NEO__LAUNCH(indices, grid, block, 0, 0, out.p);
        CUDA_OK(cudaGetLastError());
        std::vector<u64> h = out.host();
        for (size_t i = 0; i < count; i++)
            CHECK_INT(h[i], (u64)(i / per_block) << 32 | i % per_block);
    }
}

/* ---- warps ---- */

enum { WARP_RESULTS = 24 };
__global__ void warps(unsigned *out) {
    unsigned all = 0xffffffffu, lane = threadIdx.x % 32, i = threadIdx.x;
    unsigned *o = out + i * WARP_RESULTS;
    unsigned v = i * 3 + 1;
    o[0] = __shfl_sync(all, v, 5);
    o[1] = __shfl_sync(all, v, (int)(lane + 3), 8);
    o[2] = __shfl_up_sync(all, v, 3);
    o[3] = __shfl_up_sync(all, v, 3, 16);
    o[4] = __shfl_down_sync(all, v, 5);
    o[5] = __shfl_down_sync(all, v, 5, 8);
    o[6] = __shfl_xor_sync(all, v, 7);
    o[7] = __shfl_xor_sync(all, v, 9, 8);
    o[8] = (unsigned)(__shfl_sync(all, (u64)v << 40 | v, 9) >> 40);
    o[9] = (unsigned)__shfl_xor_sync(all, (double)v + 0.5, 1);
    o[10] = __ballot_sync(all, (int)(lane % 3 == 0));
    o[11] = (unsigned)__any_sync(all, lane == 31);
    o[12] = (unsigned)__all_sync(all, lane < 31);
    o[13] = __match_any_sync(all, lane % 5);
    o[14] = __match_any_sync(all, (u64)(lane % 2) << 33);
    o[15] = __reduce_add_sync(all, v);
    o[16] = __reduce_max_sync(all, v);
    o[17] = (unsigned)__reduce_min_sync(all, (int)lane - 20);
    o[18] = (unsigned)__reduce_max_sync(all, (int)lane - 40);
    o[19] = __reduce_min_sync(all, v);
    unsigned mine = lane < 11 ? 0x7ffu : ~0x7ffu;    /* halves of a warp by themselves */
    if (lane < 11) {
        o[20] = __reduce_add_sync(mine, 1u);
        o[21] = __shfl_sync(mine, v, 2);
    } else {
        __syncwarp(mine);
        o[20] = __ballot_sync(mine, (int)(lane & 1));
        o[21] = __shfl_down_sync(mine, v, 1);
    }
    __syncwarp();
    unsigned active = __activemask();
    o[22] = active >> lane & 1;
    o[23] = (unsigned)__shfl_sync(all, (float)v, 31);
}
static void test_warps() {
    FOR_SEEDS {
        device<unsigned> out(std::vector<unsigned>(96 * WARP_RESULTS, 0));
        NEO__LAUNCH(warps, 1, 96, 0, 0, out.p);
        CUDA_OK(cudaGetLastError());
        std::vector<unsigned> h = out.host();
        for (unsigned i = 0; i < 96; i++) {
            unsigned lane = i % 32, base = i - lane;
            const unsigned *o = h.data() + i * WARP_RESULTS;
            auto v = [base](unsigned l) { return (base + l) * 3 + 1; };
            CHECK_INT(o[0], v(5));
            CHECK_INT(o[1], v((lane & ~7u) | ((lane + 3) & 7)));
            CHECK_INT(o[2], v(lane < 3 ? lane : lane - 3));
            CHECK_INT(o[3], v(lane % 16 < 3 ? lane : lane - 3));
            CHECK_INT(o[4], v(lane + 5 > 31 ? lane : lane + 5));
            CHECK_INT(o[5], v(lane % 8 + 5 > 7 ? lane : lane + 5));
            CHECK_INT(o[6], v(lane ^ 7));
            CHECK_INT(o[7], v((lane ^ 9) >= (lane & ~7u) + 8 ? lane : lane ^ 9));
            CHECK_INT(o[8], v(9));
            CHECK_INT(o[9], v(lane ^ 1));
            unsigned third = 0, fifth = 0;
            for (unsigned l = 0; l < 32; l++) {
                third |= (unsigned)(l % 3 == 0) << l;
                fifth |= (unsigned)(l % 5 == lane % 5) << l;
            }
            CHECK_INT(o[10], third);
            CHECK_INT(o[11], 1);
            CHECK_INT(o[12], 0);
            CHECK_INT(o[13], fifth);
            CHECK_INT(o[14], lane % 2 ? 0xaaaaaaaau : 0x55555555u);
            CHECK_INT(o[15], 32 * v(0) + 3 * 31 * 16);
            CHECK_INT(o[16], v(31));
            CHECK_INT((int)o[17], -20);
            CHECK_INT((int)o[18], -9);
            CHECK_INT(o[19], v(0));
            CHECK_INT(o[20], lane < 11 ? 11u : 0xaaaaaaaau & ~0x7ffu);
            CHECK_INT(o[21], lane < 11 ? v(2) : v(lane < 31 ? lane + 1 : lane));
            CHECK_INT(o[22], 1);
            CHECK_INT(o[23], v(31));
        }
    }
}

/* ---- blocks ---- */

__global__ void barriers(int *out) {
    __shared__ int turned[1024];
    NEO__DYNAMIC_SHARED(int, extra);
    int i = (int)threadIdx.x, n = (int)blockDim.x;
    turned[i] = i * i;
    extra[n - 1 - i] = i;
    __syncthreads();
    int a = turned[n - 1 - i] + extra[i];
    int count = __syncthreads_count(i % 3 == 0), any = __syncthreads_or(i == 77),
        all = __syncthreads_and(i != 77);
    int some = __syncthreads_or(0), every = __syncthreads_and(1);
    int *o = out + (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    o[0] = a;
    o[1] = count;
    o[2] = any + 2 * all + 4 * some + 8 * every;
    for (int step = 0; step < 5;
         step++) { /* each round reads what others wrote in the one before */
        int left = turned[(i + 1) % n];
        __syncthreads();
        turned[i] = left;
        __syncthreads();
    }
    o[3] = turned[i];
}
template <int N> __global__ void __launch_bounds__(N) shared_of_template(float *out, float2 add) {
    __shared__ float tile[(unsigned)N / 8][8];
    tile[threadIdx.x / 8][threadIdx.x % 8] = (float)threadIdx.x + add.x;
    __syncthreads();
    out[threadIdx.x] = tile[(N - 1 - threadIdx.x) / 8][(N - 1 - threadIdx.x) % 8] * add.y;
}
static void test_blocks() {
    FOR_SEEDS {
        int n = 256, blocks = 5;
        device<int> out((size_t)(n * blocks * 4));
        NEO__LAUNCH(barriers, (unsigned)blocks, (unsigned)n, (size_t)n * sizeof(int), 0, out.p);
        CUDA_OK(cudaGetLastError());
        std::vector<int> h = out.host();
        for (int k = 0; k < n * blocks; k++) {
            int i = k % n, r = n - 1 - i;
            CHECK_INT(h[(size_t)k * 4], r * r + r);
            CHECK_INT(h[(size_t)k * 4 + 1], 86);
            CHECK_INT(h[(size_t)k * 4 + 2], 1 + 8);
            CHECK_INT(h[(size_t)k * 4 + 3], (i + 5) % n * ((i + 5) % n));
        }
        device<float> f(64);
        NEO__LAUNCH((shared_of_template<64>), 1, 64, 0, 0, f.p, make_float2(0.5f, 2.0f));
        std::vector<float> g = f.host();
        for (int i = 0; i < 64; i++) CHECK_NEAR(g[(size_t)i], 2 * (63 - i) + 1, 0);
        device<float> f2(1024);
        NEO__LAUNCH((shared_of_template<1024>), 1, 1024, 0, 0, f2.p, make_float2(1, 1));
        CHECK_NEAR(f2.host()[0], 1024, 0);
    }
}

__global__ void atomics(unsigned *u, int *s, u64 *l) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&u[0], 1u);
    atomicMax(&u[1], (unsigned)i);
    atomicMin(&u[2], (unsigned)i + 7);
    atomicOr(&u[3], 1u << (i % 20));
    atomicAnd(&u[4], ~(1u << (i % 20)));
    atomicXor(&u[5], (unsigned)i);
    u[8 + atomicAdd(&u[6], 1u)] = (unsigned)i;              /* every slot once */
    if (atomicCAS(&u[7], 0u, (unsigned)i + 1) == 0) s[3] = i;
    atomicAdd(&s[0], -1);
    atomicMin(&s[1], -i);
    atomicMax(&s[2], i - 1000);
    atomicExch(&s[4], 5);
    atomicAdd(&l[0], (u64)1 << 33);
    atomicMax(&l[1], (u64)i << 40);
    __threadfence();
}
static void test_atomics() {
    FOR_SEEDS {
        int n = 300;
        std::vector<unsigned> u0((size_t)(8 + n), 0);
        u0[2] = 1000;
        u0[4] = ~0u;
        device<unsigned> u(u0);
        device<int> s(std::vector<int>(5, 0));
        device<u64> l(std::vector<u64>(2, 0));
        CUDA_OK(cudaMemset(s.p + 2, 0x80, 4));
        NEO__LAUNCH(atomics, 3, 100, 0, 0, u.p, s.p, l.p);
        std::vector<unsigned> hu = u.host();
        std::vector<int> hs = s.host();
        std::vector<u64> hl = l.host();
        unsigned x = 0;
        for (unsigned i = 0; i < 300; i++) x ^= i;
        CHECK(hu[0] == 300 && hu[1] == 299 && hu[2] == 7 && hu[3] == 0xfffff &&
              hu[4] == ~0xfffffu && hu[5] == x);
        CHECK(hu[6] == 300 && hu[7] == (unsigned)hs[3] + 1);
        CHECK(hs[0] == -300 && hs[1] == -299 && hs[2] == -701 && hs[4] == 5);
        CHECK(hl[0] == (u64)300 << 33 && hl[1] == (u64)299 << 40);
        std::sort(hu.begin() + 8, hu.end());
        for (unsigned i = 0; i < 300; i++) CHECK_INT(hu[8 + i], i);
    }
}

/* ---- numbers ---- */

__global__ void numbers(u64 *o, float one, double done, unsigned ones) {
    int i = 0;
    o[i++] = (u64)__popc(0xf0f0u * ones) * 100 + (u64)__popcll((u64)~0 * ones >> 1);
    o[i++] = (u64)__clz((int)ones) * 100 + (u64)__clzll((long long)ones << 32);
    o[i++] = (u64)__clz(0) * 100 + (u64)__clzll(0);
    o[i++] = (u64)__ffs((int)(ones << 5)) * 100 + (u64)__ffsll((long long)ones << 40) * 10 +
             (u64)__ffs(0);
    o[i++] = __brev(0x12345678u * ones);
    o[i++] = __umulhi(0xdeadbeefu, 0xcafebabeu * ones);
    o[i++] = __umul64hi(0xdeadbeefcafebabeull, 0x123456789abcdef1ull * ones);
    o[i++] = __funnelshift_l(0x89abcdefu, 0x01234567u * ones, 12);
    o[i++] = __funnelshift_r(0x89abcdefu, 0x01234567u * ones, 36);
    o[i++] = __float_as_uint(one) + (u64)__float_as_int(-one * 0.0f);
    o[i++] = (u64)__double_as_longlong(done + 0.5);
    o[i++] = (u64)(__uint_as_float(0x40490fdbu) * one * 1000) +
             (u64)(__longlong_as_double(0x4000000000000000ll) * 5);
    /* (1 + 2^-12)^2 - 1 - 2^-11: lost when the product is rounded, kept when it is not */
    float a = one + 0x1p-12f, c = -(one + 0x1p-11f);
    o[i++] = __float_as_uint(__fadd_rn(__fmul_rn(a, a), c));
    o[i++] = __float_as_uint(__fmaf_rn(a, a, c));
    double da = done + 0x1p-27, dc = -(done + 0x1p-26);
    o[i++] = (u64)__double_as_longlong(__dadd_rn(__dmul_rn(da, da), dc));
    o[i++] = (u64)__double_as_longlong(__fma_rn(da, da, dc));
    o[i++] = __float_as_uint(__fdiv_rn(one, 3)) ^ __float_as_uint(__frcp_rn(3 * one));
    o[i++] = __float_as_uint(__fsqrt_rn(2 * one));
    o[i++] = (u64)__double_as_longlong(__ddiv_rn(done, 3)) ^
             (u64)__double_as_longlong(__dsqrt_rn(2 * done));
    o[i++] = (u64)(long long)__float2int_rn(2.5f * one) * 1000 + (u64)__float2int_rz(9.9f * one);
    o[i++] = (u64)(unsigned)__float2int_rn(-3.5f * one);
    o[i++] = (u64)(unsigned)__float2int_rn(1e20f * one) + (u64)__float2int_rn(nanf("") * one);
    o[i++] = __float2uint_rn(-7 * one) + (u64)__float2uint_rz(4e9f * one);
    o[i++] = (u64)__double2ll_rn(-1e30 * done);
    o[i++] = __float_as_uint(__int2float_rn((int)(16777217u * ones))) ^
             __float_as_uint(__double2float_rn(done / 3));
}
static void test_numbers() {
    static const u64 want[] = {8 * 100 + 63,
                               31 * 100 + 31,
                               32 * 100 + 64,
                               6 * 100 + 41 * 10,
                               0x1e6a2c48u,
                               0xb092ab7bu,
                               0x0fd5bdeeeb2a01d8ull,
                               0x3456789au,
                               0x789abcdeu,
                               0x3f800000u + (u64)(int)0x80000000,
                               0x3ff8000000000000ull,
                               3141 + 10,
                               0,
                               0x33800000u,
                               0,
                               0x3c90000000000000ull,
                               0,
                               0x3fb504f3u,
                               0x3fd5555555555555ull ^ 0x3ff6a09e667f3bcdull,
                               2 * 1000 + 9,
                               (unsigned)-4,
                               0x7fffffffu,
                               4000000000u,
                               0x8000000000000000ull,
                               0x4b800000u ^ 0x3eaaaaabu};
    enum { COUNT = sizeof want / sizeof *want };
    device<u64> out(COUNT);
    NEO__LAUNCH(numbers, 1, 1, 0, 0, out.p, 1.0f, 1.0, 1u);
    std::vector<u64> h = out.host();
    for (size_t i = 0; i < COUNT; i++)
        if (h[i] != want[i]) FAIL("number %zu is %llx, expected %llx", i, h[i], want[i]);
}

__global__ void halves(const float *in, int n, unsigned short *f16, unsigned short *bf16) {
    for (int i = 0; i < n; i++) {
        f16[i] = __half_as_ushort(__float2half_rn(in[i]));
        bf16[i] = __bfloat16_as_ushort(__float2bfloat16_rn(in[i]));
    }
}
__global__ void floats_of_halves(float *f16, float *bf16) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    f16[i] = __half2float(__ushort_as_half((unsigned short)i));
    bf16[i] = __bfloat162float(__ushort_as_bfloat16((unsigned short)i));
}
/* The value of a small float by its definition. */
static double small_float(unsigned bits, int mantissa, int bias) {
    unsigned m = bits & ((1u << mantissa) - 1),
             e = bits >> mantissa & ((1u << (15 - mantissa)) - 1);
    double v = e ? ldexp(1 + ldexp(m, -mantissa), (int)e - bias) : ldexp(m, 1 - bias - mantissa);
    if (e == (1u << (15 - mantissa)) - 1) v = m ? NAN : INFINITY;
    return bits & 0x8000u ? -v : v;
}
static void test_halves() {
    device<float> f16(65536), bf16(65536);
    NEO__LAUNCH(floats_of_halves, 256, 256, 0, 0, f16.p, bf16.p);
    std::vector<float> values[2] = {f16.host(), bf16.host()};
    struct rounding { float value; int type; unsigned want; };
    std::vector<rounding> list;
    for (int type = 0; type < 2; type++) {
        int mantissa = type ? 7 : 10, bias = type ? 127 : 15;
        for (unsigned i = 0; i < 65536; i++) {
            double v = small_float(i, mantissa, bias);
            if (v != v) CHECK(values[type][i] != values[type][i]);
            else if ((double)values[type][i] != v || signbit(values[type][i]) != signbit(v))
                FAIL("value %x", i);
        }
        /* Each finite value, the tie after it, and the floats around the tie. */
        unsigned last = type ? 0x7f7f : 0x7bff;
        for (unsigned i = 0; i <= last; i += i < 2000 || i > last - 50 ? 1 : 37) {
            double low = small_float(i, mantissa, bias);
            double high =
                i == last ? ldexp(1, type ? 128 : 16) : small_float(i + 1, mantissa, bias);
            float tie = (float)((low + high) / 2), sign = i & 4 ? -1.0f : 1.0f;
            unsigned top = i & 4 ? 0x8000u : 0;
            list.push_back({sign * (float)low, type, i | top});
            list.push_back({sign * tie, type, (i + (i & 1)) | top});
            list.push_back({sign * nextafterf(tie, 0), type, i | top});
            list.push_back({sign * nextafterf(tie, INFINITY), type, (i + 1) | top});
        }
        unsigned inf = type ? 0x7f80 : 0x7c00;
        list.push_back({INFINITY, type, inf});
        list.push_back({-INFINITY, type, inf | 0x8000u});
        list.push_back({3.4028e38f, type, inf});
        list.push_back({NAN, type, 0x7fff});
    }
    std::vector<float> in;
    for (const rounding &r : list) in.push_back(r.value);
    device<float> input(in);
    device<unsigned short> o16(in.size()), ob16(in.size());
    NEO__LAUNCH(halves, 1, 1, 0, 0, input.p, (int)in.size(), o16.p, ob16.p);
    std::vector<unsigned short> got[2] = {o16.host(), ob16.host()};
    for (size_t i = 0; i < list.size(); i++)
        if (got[list[i].type][i] != list[i].want)
            FAIL("%s of %a is %x, expected %x", list[i].type ? "bf16" : "f16", (double)in[i],
                 got[list[i].type][i], list[i].want);
    CHECK(list.size() > 20000);
}

/* ---- tensor cores ---- */

#ifdef EMULATED
#define mma_bf16 neo_emu_mma_bf16
#define ldmatrix neo_emu_ldmatrix
#else
__device__ void mma_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned *b) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
__device__ void ldmatrix(unsigned (&to)[4], const void *row, bool trans) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if (trans)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}
#endif
/* c [16][8] += a [16][16] b [16][8], row-major, by each of two warps; b of 8 more columns is read
   and left alone. */
__global__ void tensor_product(const unsigned short *a, const unsigned short *b, float *c) {
    __shared__ __align__(16) unsigned short left[2][16][16], right[2][16][16];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int i = lane; i < 256; i += 32) {
        left[warp][i / 16][i % 16] = a[256 * warp + i];
        right[warp][i / 16][i % 16] = b[256 * warp + i];
    }
    __syncwarp();
    unsigned x[4], y[4];
    float sum[4];
    ldmatrix(x, &left[warp][lane % 16][lane / 16 * 8], false);
    ldmatrix(y, &right[warp][lane % 16][lane / 16 * 8], true);
    float *to = c + 128 * warp + lane / 4 * 8 + lane % 4 * 2;
    for (int i = 0; i < 4; i++) sum[i] = to[i / 2 * 64 + i % 2];
    mma_bf16(sum, x, y);
    for (int i = 0; i < 4; i++) to[i / 2 * 64 + i % 2] = sum[i];
}
static void test_tensor_cores() {
    std::vector<float> a(512), b(512), c(256);
    std::vector<unsigned short> narrow[2];
    for (float &x : c) x = (float)(int)(test_random() % 100);
    for (int i = 0; i < 512; i++) {
        a[i] = (float)(int)(test_random() % 200) - 100;
        b[i] = (float)(int)(test_random() % 200) - 100;
        unsigned bits[2]; /* these numbers are bf16 */
        memcpy(&bits[0], &a[i], 4), memcpy(&bits[1], &b[i], 4);
        for (int k = 0; k < 2; k++) narrow[k].push_back((unsigned short)(bits[k] >> 16));
    }
    FOR_SEEDS {
        device<unsigned short> x(narrow[0]), y(narrow[1]);
        device<float> z(c);
        NEO__LAUNCH(tensor_product, 1, 64, 0, 0, x.p, y.p, z.p);
        const std::vector<float> got = z.host();
        for (int i = 0; i < 256; i++) {
            const int warp = i / 128, row = i / 8 % 16, col = i % 8;
            float want = c[i];
            for (int k = 0; k < 16; k++)
                want += a[256 * warp + 16 * row + k] * b[256 * warp + 16 * k + col];
            CHECK_NEAR(got[i], want, 0);
        }
    }
}

/* ---- streams, events, copies ---- */

__global__ void add(int *x, int n, int v) {
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(gridDim.x * blockDim.x))
        x[i] += v;
}
__global__ void sum_into(const int *a, const int *b, int *out, int n) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i] = a[i] + b[i] * 1000;
}
static void count_call(void *p) { ++*static_cast<int *>(p); }

static void test_streams() {
    int least = -1, greatest = -1;
    CUDA_OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0 && greatest < 0);
    FOR_SEEDS {
        const int n = 1000;
        cudaStream_t s1, s2;
        cudaEvent_t e1, e2, t1;
        CUDA_OK(cudaStreamCreateWithFlags(&s1, cudaStreamNonBlocking));
        CUDA_OK(cudaStreamCreateWithPriority(&s2, cudaStreamNonBlocking, greatest));
        CUDA_OK(cudaEventCreateWithFlags(&e1, cudaEventDisableTiming));
        CUDA_OK(cudaEventCreate(&e2));
        CUDA_OK(cudaEventCreate(&t1));
        int *pinned = nullptr, *a = nullptr, *b = nullptr, calls = 0;
        CUDA_OK(cudaMallocHost(&pinned, n * sizeof(int)));
        CUDA_OK(cudaMallocAsync(&a, n * sizeof(int), s1));
        CUDA_OK(cudaStreamSynchronize(s1));
        CUDA_OK(cudaMalloc(&b, n * sizeof(int)));
        REQUIRE(pinned && a && b);
        for (int i = 0; i < n; i++) pinned[i] = i;
        CUDA_OK(cudaEventRecord(t1, s1));
        CUDA_OK(cudaMemcpyAsync(a, pinned, n * sizeof(int), cudaMemcpyHostToDevice, s1));
        NEO__LAUNCH(add, 4, 32, 0, s1, a, n, 5);
        CUDA_OK(cudaEventRecord(e1, s1));
        CUDA_OK(cudaMemsetAsync(b, 0, n * sizeof(int), s2));
        NEO__LAUNCH(add, 4, 32, 0, s2, b, n, 7);
        CUDA_OK(cudaStreamWaitEvent(s2, e1, 0));
        NEO__LAUNCH(sum_into, 8, 128, 0, s2, a, b, a, n);
        CUDA_OK(cudaMemcpyAsync(pinned, a, n * sizeof(int), cudaMemcpyDeviceToHost, s2));
        CUDA_OK(cudaLaunchHostFunc(s2, count_call, &calls));
        CUDA_OK(cudaEventRecord(e2, s2));
        while (cudaEventQuery(e2) == cudaErrorNotReady) {}
        CHECK_INT(calls, 1);
        for (int i = 0; i < n; i++) CHECK_INT(pinned[i], i + 5 + 7000);
        float ms = -1;
        CUDA_OK(cudaEventElapsedTime(&ms, t1, e2));
        CHECK(ms >= 0 && ms < 60000);
        CUDA_IS(cudaEventElapsedTime(&ms, t1, e1), cudaErrorInvalidResourceHandle);
        CUDA_OK(cudaFreeAsync(a, s2));
        CUDA_OK(cudaStreamSynchronize(s2));
        CUDA_OK(cudaStreamQuery(s1));
        CUDA_OK(cudaEventSynchronize(e1));
        CUDA_OK(cudaFree(b));
        CUDA_OK(cudaFreeHost(pinned));
        for (cudaEvent_t e : {e1, e2, t1}) CUDA_OK(cudaEventDestroy(e));
        for (cudaStream_t s : {s1, s2}) CUDA_OK(cudaStreamDestroy(s));
    }
}
/* The NULL stream and blocking streams wait for each other without events. */
static void test_legacy_stream() {
    FOR_SEEDS {
        device<int> x(std::vector<int>(64, 1));
        cudaStream_t s;
        CUDA_OK(cudaStreamCreate(&s));
        for (int round = 0; round < 3; round++) {
            NEO__LAUNCH(add, 1, 64, 0, s, x.p, 64, 1);
            NEO__LAUNCH(sum_into, 1, 64, 0, 0, x.p, x.p, x.p, 64);
        }
        int want = 1;
        for (int round = 0; round < 3; round++) want = (want + 1) * 1001;
        for (int v : x.host()) CHECK_INT(v, want);
        CUDA_OK(cudaStreamDestroy(s));
    }
}
static void test_copies() {
    FOR_SEEDS {
        const size_t rows = 7, width = 12, dpitch = 32, spitch = 20;
        std::vector<unsigned char> from(rows * spitch), back(rows * width, 0);
        for (size_t i = 0; i < from.size(); i++) from[i] = (unsigned char)(i * 5);
        device<unsigned char> x(rows * dpitch), y(rows * dpitch);
        CUDA_OK(cudaMemset(x.p, 9, rows * dpitch));
        CUDA_OK(cudaMemcpy2DAsync(x.p, dpitch, from.data(), spitch, width, rows,
                                  cudaMemcpyHostToDevice, 0));
        CUDA_OK(cudaMemcpyAsync(y.p, x.p, rows * dpitch, cudaMemcpyDefault, 0));
        CUDA_OK(cudaMemcpy2DAsync(back.data(), width, y.p, dpitch, width, rows,
                                  cudaMemcpyDeviceToHost, 0));
        CUDA_OK(cudaDeviceSynchronize());
        std::vector<unsigned char> all = y.host();
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < dpitch; i++) {
                CHECK_INT(all[r * dpitch + i], i < width ? from[r * spitch + i] : 9);
                if (i < width) CHECK_INT(back[r * width + i], from[r * spitch + i]);
            }
        CUDA_IS(
            cudaMemcpy2DAsync(x.p, 8, from.data(), spitch, width, rows, cudaMemcpyHostToDevice, 0),
            cudaErrorInvalidPitchValue);
        cudaPointerAttributes at;
        CUDA_OK(cudaPointerGetAttributes(&at, x.p + 3));
        CHECK(at.type == cudaMemoryTypeDevice && at.device == 0);
        CUDA_OK(cudaPointerGetAttributes(&at, back.data()));
        CHECK(at.type == cudaMemoryTypeUnregistered);
        size_t free_bytes = 0, total = 0;
        CUDA_OK(cudaMemGetInfo(&free_bytes, &total));
        CHECK(free_bytes > 0 && free_bytes < total);
    }
}

/* ---- graphs ---- */

static void test_graphs() {
    FOR_SEEDS {
        const int n = 256;
        cudaStream_t s, side;
        cudaEvent_t fork, join;
        CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        CUDA_OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
        CUDA_OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
        CUDA_OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
        device<int> a(std::vector<int>((size_t)n, 1)), b(std::vector<int>((size_t)n, 2)),
            out((size_t)n);
        int step = 3;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaStreamCaptureStatus status;
        CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        NEO__LAUNCH(add, 2, 64, 0, s, a.p, n, step);
        CUDA_OK(cudaEventRecord(fork, s));
        CUDA_OK(cudaStreamWaitEvent(side, fork, 0));
        NEO__LAUNCH(add, 2, 64, 0, side, b.p, n, 1);
        CUDA_OK(cudaEventRecord(join, side));
        NEO__LAUNCH(add, 2, 64, 0, s, a.p, n, step);
        CUDA_OK(cudaStreamWaitEvent(s, join, 0));
        NEO__LAUNCH(sum_into, 1, 256, 0, s, a.p, b.p, out.p, n);
        CUDA_OK(cudaStreamIsCapturing(side, &status));
        CHECK(status == cudaStreamCaptureStatusActive);
        CUDA_OK(cudaStreamEndCapture(s, &graph));
        CUDA_OK(cudaStreamIsCapturing(side, &status));
        CHECK(status == cudaStreamCaptureStatusNone);
        step = 100;                       /* the arguments were copied */
        size_t nodes = 0;
        CUDA_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
        CHECK_INT(nodes, 4);
        CHECK_INT(a.host()[0], 1);        /* nothing ran */
        CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
        CUDA_OK(cudaGraphDestroy(graph));
        for (int round = 1; round <= 3; round++) {
            CUDA_OK(cudaGraphLaunch(exec, s));
            CUDA_OK(cudaStreamSynchronize(s));
            for (int v : out.host()) CHECK_INT(v, 1 + 6 * round + (2 + round) * 1000);
        }
        CUDA_OK(cudaGraphExecDestroy(exec));
        for (cudaEvent_t e : {fork, join}) CUDA_OK(cudaEventDestroy(e));
        for (cudaStream_t k : {s, side}) CUDA_OK(cudaStreamDestroy(k));
    }
}
/* Nodes that are added keep the bytes that their arguments had then, until others are set: a graph
   that is launched again without them computes what a former step asked for. */
static void test_graph_nodes() {
    FOR_SEEDS {
        const int n = 128;
        device<int> a(std::vector<int>((size_t)n, 1)), out((size_t)n);
        cudaStream_t s;
        cudaGraph_t graph = nullptr, part = nullptr;
        cudaGraphExec_t exec;
        cudaGraphNode_t node[3];
        int step = 10, count = n;
        int *to = a.p, *sum = out.p;
        void *values[] = {&to, &count, &step}, *sums[] = {&to, &to, &sum, &count};
        cudaKernelNodeParams params = {}, last = {};
        CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        CUDA_OK(cudaGraphCreate(&graph, 0));
        params.func = (void *)(void (*)(int *, int, int))add;
        params.gridDim = dim3(2), params.blockDim = dim3(64);
        params.kernelParams = values;
#ifdef EMULATED
        if (seed == 0)
            CUDA_IS(cudaGraphAddKernelNode(&node[0], graph, nullptr, 0, &params),
                    cudaErrorInvalidDeviceFunction);
#endif
        NEO__KNOW_KERNEL(add);
        NEO__KNOW_KERNEL(sum_into);
        CUDA_OK(cudaGraphAddKernelNode(&node[0], graph, nullptr, 0, &params));
        CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
        NEO__LAUNCH(add, 2, 64, 0, s, a.p, n, 100);
        CUDA_OK(cudaStreamEndCapture(s, &part));
        CUDA_OK(cudaGraphAddChildGraphNode(&node[1], graph, &node[0], 1, part));
        CUDA_OK(cudaGraphDestroy(part));
        last = params;
        last.func = (void *)(void (*)(const int *, const int *, int *, int))sum_into;
        last.gridDim = dim3(1), last.blockDim = dim3(n);
        last.kernelParams = sums;
        CUDA_OK(cudaGraphAddKernelNode(&node[2], graph, &node[1], 1, &last));
        CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
        int want = 1;
        for (step = 11; step <= 13; step++) { /* nobody sets it */
            CUDA_OK(cudaGraphLaunch(exec, s));
            want += 110;
        }
        CUDA_OK(cudaGraphExecKernelNodeSetParams(exec, node[0], &params));
        CUDA_OK(cudaGraphLaunch(exec, s)); /* with 14, */
        step = 50;
        CUDA_OK(cudaGraphExecKernelNodeSetParams(exec, node[0],
                                                 &params)); /* which the launch before keeps */
        CUDA_OK(cudaGraphLaunch(exec, s));
        want += 114 + 150;
        CUDA_OK(cudaStreamSynchronize(s));
        for (int v : a.host()) CHECK_INT(v, want);
        for (int v : out.host()) CHECK_INT(v, want + 1000 * want);
        CUDA_IS(cudaGraphExecKernelNodeSetParams(exec, node[1], &params),
                cudaErrorInvalidValue); /* a child graph */
        CUDA_IS(cudaGraphExecKernelNodeSetParams(exec, node[2], &params),
                cudaErrorInvalidValue); /* another kernel */
        CUDA_OK(cudaGraphExecDestroy(exec));
        CUDA_OK(cudaGraphDestroy(graph));
        CUDA_OK(cudaStreamDestroy(s));
    }
}
static void test_capture_errors() {
    cudaStream_t s, other;
    cudaEvent_t e;
    cudaGraph_t graph = nullptr;
    cudaStreamCaptureStatus status;
    void *p = nullptr;
    device<int> x(64);
    CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CUDA_OK(cudaEventCreate(&e));
    CUDA_IS(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
    CUDA_IS(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);

    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CUDA_IS(cudaMalloc(&p, 100), cudaErrorStreamCaptureUnsupported);
    CUDA_OK(cudaStreamIsCapturing(s, &status));
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    CUDA_IS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);

    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CUDA_OK(cudaMalloc(&p, 100));         /* relaxed: allowed */
    CUDA_IS(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
    CUDA_IS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    CUDA_OK(cudaFree(p));

    CUDA_OK(cudaEventRecord(e, other));   /* work outside of the capture */
    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CUDA_IS(cudaStreamWaitEvent(s, e, 0), cudaErrorStreamCaptureIsolation);
    CUDA_IS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);

    CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    CUDA_OK(cudaEventRecord(e, s));
    CUDA_OK(cudaStreamWaitEvent(other, e, 0));
    NEO__LAUNCH(add, 1, 32, 0, other, x.p, 64, 1);
    CUDA_IS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
    CUDA_OK(cudaStreamIsCapturing(other, &status));
    CHECK(status == cudaStreamCaptureStatusNone);
    CUDA_OK(cudaStreamSynchronize(s));
    CUDA_OK(cudaEventDestroy(e));
    CUDA_OK(cudaStreamDestroy(s));
    CUDA_OK(cudaStreamDestroy(other));
}

/* ---- limits of a launch ---- */

__global__ void touch_shared(int *out, int words) {
    NEO__DYNAMIC_SHARED(int, all);
    all[words - 1] = 42;
    out[0] = all[words - 1];
}
static void launch_is(dim3 grid, dim3 block, size_t shared, cudaError_t want) {
    device<int> x(1);
    NEO__LAUNCH(touch_shared, grid, block, shared, 0, x.p, (int)(shared / 4));
    cudaError_t got = cudaGetLastError();
    if (got != want)
        FAIL("%u,%u,%u x %u,%u,%u, %zu bytes: %s", grid.x, grid.y, grid.z, block.x, block.y,
             block.z, shared, cudaGetErrorName(got));
    if (want == cudaSuccess) CHECK_INT(x.host()[0], 42);
}
static void test_limits() {
    const cudaError_t bad = cudaErrorInvalidConfiguration;
    launch_is(1, 1024, 64, cudaSuccess);
    launch_is(1, 1025, 64, bad);
    launch_is(1, dim3(32, 33), 64, bad);
    launch_is(1, dim3(1, 1, 65), 64, bad);
    launch_is(0, 32, 64, bad);
    launch_is(1, 0, 64, bad);
    launch_is(dim3(1, 65536), 32, 64, bad);
    launch_is(dim3(1, 1, 65536), 32, 64, bad);
    launch_is(2147483648u, 32, 64, bad);
    launch_is(1, 32, 48 * 1024, cudaSuccess);
    launch_is(1, 32, 48 * 1024 + 4, cudaErrorInvalidValue);
    CUDA_IS(cudaFuncSetAttribute(touch_shared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 227 * 1024 + 1),
            cudaErrorInvalidValue);
    CUDA_OK(cudaFuncSetAttribute(touch_shared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 100 * 1024));
    launch_is(1, 32, 100 * 1024, cudaSuccess);
    launch_is(1, 32, 101 * 1024, cudaErrorInvalidValue);
    int blocks = 0;
    CUDA_OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, touch_shared, 1024, 64 * 1024));
    CHECK(blocks >= 1 && blocks <= 2);
}
static void test_device_queries() {
    int count = 0, device_now = -1, value = 0, driver = 0, runtime = 0;
    CUDA_OK(cudaGetDeviceCount(&count));
    CHECK(count >= 1);
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaGetDevice(&device_now));
    CHECK_INT(device_now, 0);
    CUDA_IS(cudaSetDevice(count), cudaErrorInvalidDevice);
    cudaDeviceProp prop;
    CUDA_OK(cudaGetDeviceProperties(&prop, 0));
    CHECK(prop.major >= 7 && prop.warpSize == 32 && prop.multiProcessorCount > 0 && prop.name[0] &&
          prop.totalGlobalMem);
    CUDA_OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    CHECK_INT(value, prop.multiProcessorCount);
    CUDA_OK(cudaDriverGetVersion(&driver));
    CUDA_OK(cudaRuntimeGetVersion(&runtime));
    CHECK(driver >= runtime && runtime >= 12000);
    CHECK(strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation") == 0);
    CHECK(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);
}

/* ---- cub ---- */

template <class Call> static void with_storage(Call call) {
    size_t bytes = 0;
    CUDA_OK(call(nullptr, bytes));
    CHECK(bytes > 0);
    device<char> storage(bytes);
    CUDA_OK(call(storage.p, bytes));
    CUDA_OK(cudaDeviceSynchronize());
}
template <class K> static void sorts(std::vector<K> keys, int begin, int end) {
    const int n = (int)keys.size();
    std::vector<int> values((size_t)n), order((size_t)n);
    for (int i = 0; i < n; i++) values[(size_t)i] = order[(size_t)i] = i;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        K x = keys[(size_t)a], y = keys[(size_t)b];
        if (begin == 0 && end == sizeof(K) * 8) return x < y;
        u64 mask = ((u64)1 << (end - begin)) - 1;
        return ((u64)x >> begin & mask) < ((u64)y >> begin & mask);
    });
    device<K> k(keys), k2((size_t)n);
    device<int> v(values), v2((size_t)n);
    with_storage([&](void *p, size_t &bytes) {
        return cub::DeviceRadixSort::SortPairs(p, bytes, k.p, k2.p, v.p, v2.p, n, begin, end, 0);
    });
    CHECK(v2.host() == order);
    for (size_t i = 0; i < order.size(); i++) CHECK(k2.host()[i] == keys[(size_t)order[i]]);
    with_storage([&](void *p, size_t &bytes) {
        return cub::DeviceRadixSort::SortKeys(p, bytes, k.p, k2.p, n, begin, end, 0);
    });
    std::vector<K> sorted = k2.host();
    for (size_t i = 0; i < order.size(); i++) CHECK(sorted[i] == keys[(size_t)order[i]]);
    cub::DoubleBuffer<K> kb(k.p, k2.p);
    cub::DoubleBuffer<int> vb(v.p, v2.p);
    with_storage([&](void *p, size_t &bytes) {
        return cub::DeviceRadixSort::SortPairs(p, bytes, kb, vb, n, begin, end, 0);
    });
    std::vector<int> now((size_t)n);
    CUDA_OK(cudaMemcpy(now.data(), vb.Current(), now.size() * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(now == order);
    std::vector<K> keys_now((size_t)n);
    CUDA_OK(cudaMemcpy(keys_now.data(), kb.Current(), keys_now.size() * sizeof(K),
                       cudaMemcpyDeviceToHost));
    CHECK(keys_now == sorted);
}
static void test_cub_sort() {
    FOR_SEEDS {
        std::vector<unsigned> u;
        std::vector<u64> l;
        std::vector<int> s;
        std::vector<float> f;
        for (int i = 0; i < 200; i++) {
            u.push_back(test_random() % 50 * 0x01010101u);
            l.push_back((u64)test_random() << 30 | test_random() % 8);
            s.push_back((int)test_random() % 40 - 20);
            f.push_back((float)((int)test_random() % 30 - 15) * 0.5f);
        }
        f[7] = -0.0f;
        f[9] = -INFINITY;
        sorts(u, 0, 32);
        sorts(u, 8, 11);
        sorts(l, 0, 64);
        sorts(l, 30, 35);
        sorts(s, 0, 32);
        sorts(f, 0, 32);
    }
}
struct is_odd {
    __host__ __device__ bool operator()(int v) const { return v & 1; }
};
static void test_cub_others() {
    FOR_SEEDS {
        const int n = 300;
        std::vector<int> in((size_t)n);
        std::vector<char> flags((size_t)n);
        for (int i = 0; i < n; i++) {
            in[(size_t)i] = i / 7 * 3 - 20;
            flags[(size_t)i] = i % 5 == 0;
        }
        device<int> x(in), y((size_t)n), counts((size_t)n), count(1);
        device<char> f(flags);
        with_storage([&](void *p, size_t &b) {
            return cub::DeviceScan::ExclusiveSum(p, b, x.p, y.p, n, 0);
        });
        int sum = 0;
        std::vector<int> h = y.host();
        for (int i = 0; i < n; sum += in[(size_t)i++]) CHECK_INT(h[(size_t)i], sum);
        with_storage(
            [&](void *p, size_t &b) { return cub::DeviceReduce::Sum(p, b, x.p, count.p, n, 0); });
        CHECK_INT(count.host()[0], sum);
        with_storage([&](void *p, size_t &b) {
            return cub::DeviceScan::InclusiveSum(p, b, x.p, y.p, n, 0);
        });
        h = y.host();
        sum = 0;
        for (int i = 0; i < n; i++) CHECK_INT(h[(size_t)i], sum += in[(size_t)i]);
        with_storage([&](void *p, size_t &b) {
            return cub::DeviceSelect::Flagged(p, b, x.p, f.p, y.p, count.p, n, 0);
        });
        CHECK_INT(count.host()[0], 60);
        h = y.host();
        for (int i = 0; i < 60; i++) CHECK_INT(h[(size_t)i], in[(size_t)i * 5]);
        with_storage([&](void *p, size_t &b) {
            return cub::DeviceSelect::If(p, b, x.p, y.p, count.p, n, is_odd(), 0);
        });
        h = y.host();
        size_t kept = 0;
        for (int v : in)
            if (v & 1) CHECK_INT(h[kept++], v);
        CHECK_INT(count.host()[0], kept);
        with_storage([&](void *p, size_t &b) {
            return cub::DeviceRunLengthEncode::Encode(p, b, x.p, y.p, counts.p, count.p, n, 0);
        });
        CHECK_INT(count.host()[0], 43);
        h = y.host();
        std::vector<int> c = counts.host();
        for (int i = 0; i < 43; i++) {
            CHECK_INT(h[(size_t)i], i * 3 - 20);
            CHECK_INT(c[(size_t)i], i < 42 ? 7 : 6);
        }
    }
}

/* ---- cuBLASLt ---- */

struct problem {
    cudaDataType in, out;
    int transposed_a, transposed_b, order_a, order_b, order_out;
    cublasLtEpilogue_t epilogue;
    float alpha, beta;
    int batches;
};
static std::vector<unsigned char> encode(const std::vector<float> &v, cudaDataType type) {
    std::vector<unsigned char> bytes(v.size() * (type == CUDA_R_32F ? 4 : 2));
    for (size_t i = 0; i < v.size(); i++) {
        unsigned short h = type == CUDA_R_16F ? __half_as_ushort(__float2half_rn(v[i]))
                                              : __bfloat16_as_ushort(__float2bfloat16_rn(v[i]));
        if (type == CUDA_R_32F) memcpy(&bytes[i * 4], &v[i], 4);
        else memcpy(&bytes[i * 2], &h, 2);
    }
    return bytes;
}
static float decode(const std::vector<unsigned char> &bytes, size_t i, cudaDataType type) {
    float f;
    unsigned short h;
    if (type == CUDA_R_32F) return memcpy(&f, &bytes[i * 4], 4), f;
    memcpy(&h, &bytes[i * 2], 2);
    return type == CUDA_R_16F ? __half2float(__ushort_as_half(h))
                              : __bfloat162float(__ushort_as_bfloat16(h));
}
/* A matrix of small multiples of 1/8, so that sums are exact in f32. */
struct operand {
    int rows, cols, order, ld, batches;
    cudaDataType type;
    std::vector<float> values;
    device<unsigned char> memory;
    cublasLtMatrixLayout_t layout;
    operand(int r, int c, int o, int b, cudaDataType t)
        : rows(r), cols(c), order(o), ld((o ? c : r) + 3), batches(b), type(t),
          values((size_t)(ld * (o ? r : c) * b + 5)),
          memory(values.size() * (t == CUDA_R_32F ? 4 : 2)) {
        for (float &v : values) v = (float)((int)(test_random() % 33) - 16) / 8;
        write();
        LT_OK(cublasLtMatrixLayoutCreate(&layout, t, (uint64_t)r, (uint64_t)c, ld));
        int32_t order32 = o, batches32 = b;
        int64_t stride = ld * (o ? r : c);
        LT_OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order32,
                                               sizeof order32));
        LT_OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                               &batches32, sizeof batches32));
        LT_OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &stride, sizeof stride));
    }
    ~operand() { cublasLtMatrixLayoutDestroy(layout); }
    void write() {
        std::vector<unsigned char> bytes = encode(values, type);
        CUDA_OK(cudaMemcpy(memory.p, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    }
    size_t at(int r, int c, int b) const {
        return (size_t)(b * ld * (order ? rows : cols) + (order ? r * ld + c : c * ld + r));
    }
    double get(int r, int c, int b, bool transposed) const {
        return (double)values[transposed ? at(c, r, b) : at(r, c, b)];
    }
};
struct lt_objects {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    lt_objects() {
        LT_OK(cublasLtCreate(&handle));
        LT_OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        LT_OK(cublasLtMatmulPreferenceCreate(&preference));
    }
    ~lt_objects() {
        LT_OK(cublasLtMatmulPreferenceDestroy(preference));
        LT_OK(cublasLtMatmulDescDestroy(desc));
        LT_OK(cublasLtDestroy(handle));
    }
    template <class T> void set(cublasLtMatmulDescAttributes_t attr, T value) {
        LT_OK(cublasLtMatmulDescSetAttribute(desc, attr, &value, sizeof value));
    }
};
static void multiply(const problem &p) {
    const int m = 9, n = 6, k = 20;
    operand a(p.transposed_a ? k : m, p.transposed_a ? m : k, p.order_a, p.batches, p.in);
    operand b(p.transposed_b ? n : k, p.transposed_b ? k : n, p.order_b, p.batches, p.in);
    operand c(m, n, p.order_out, p.batches, p.out), d(m, n, p.order_out, p.batches, p.out);
    operand bias(m > n ? m : n, 1, 0, 1, p.out);
    lt_objects lt;
    lt.set(CUBLASLT_MATMUL_DESC_TRANSA, (int32_t)(p.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N));
    lt.set(CUBLASLT_MATMUL_DESC_TRANSB, (int32_t)(p.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N));
    lt.set(CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)p.epilogue);
    lt.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, (const void *)bias.memory.p);
    size_t room = 1 << 20;
    LT_OK(cublasLtMatmulPreferenceSetAttribute(
        lt.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    LT_OK(cublasLtMatmulAlgoGetHeuristic(lt.handle, lt.desc, a.layout, b.layout, c.layout, d.layout,
                                         lt.preference, 1, &result, &found));
    CHECK_INT(found, 1);
    if (!found) return;
    device<char> workspace(result.workspaceSize + 1);
    LT_OK(cublasLtMatmul(lt.handle, lt.desc, &p.alpha, a.memory.p, a.layout, b.memory.p, b.layout,
                         &p.beta, c.memory.p, c.layout, d.memory.p, d.layout, &result.algo,
                         workspace.p, result.workspaceSize, 0));
    std::vector<unsigned char> got = d.memory.host(), got_bias = bias.memory.host();
    for (int batch = 0; batch < p.batches; batch++)
        for (int row = 0; row < m; row++)
            for (int col = 0; col < n; col++) {
                double want = 0, sum_a = 0, sum_b = 0;
                for (int i = 0; i < k; i++) {
                    double x = a.get(row, i, batch, p.transposed_a),
                           y = b.get(i, col, batch, p.transposed_b);
                    want += x * y, sum_a += x, sum_b += y;
                }
                want = p.alpha * want + p.beta * c.get(row, col, batch, false);
                if (p.epilogue & 4) want += (double)bias.values[(size_t)row];
                if ((p.epilogue & 2) && want < 0) want = 0;
                if (p.epilogue & 32)
                    want = 0.5 * want *
                           (1 + tanh(0.7978845608 * (want + 0.044715 * want * want * want)));
                double tolerance = (p.out == CUDA_R_16F    ? 1e-3
                                    : p.out == CUDA_R_16BF ? 8e-3
                                                           : 1e-6) *
                                   (1 + fabs(want));
                CHECK_NEAR(decode(got, d.at(row, col, batch), p.out), want, tolerance);
                if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA)
                    CHECK_NEAR(decode(got_bias, (size_t)row, p.out), sum_a, 0.1);
                if (p.epilogue == CUBLASLT_EPILOGUE_BGRADB)
                    CHECK_NEAR(decode(got_bias, (size_t)col, p.out), sum_b, 0.1);
            }
    /* What lies between the columns is as before. */
    for (int col = 0; col < (p.order_out ? m : n); col++)
        for (int i = d.ld - 3; i < d.ld; i++)
            CHECK(decode(got, (size_t)(col * d.ld + i), p.out) ==
                  d.values[(size_t)(col * d.ld + i)]);
}
static void test_matmul() {
    const cudaDataType types[][2] = {{CUDA_R_32F, CUDA_R_32F},
                                     {CUDA_R_16BF, CUDA_R_16BF},
                                     {CUDA_R_16BF, CUDA_R_32F},
                                     {CUDA_R_16F, CUDA_R_16F},
                                     {CUDA_R_16F, CUDA_R_32F}};
    for (const auto &t : types)
        for (int bits = 0; bits < 32; bits++)
            multiply({t[0], t[1], bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1, bits >> 4,
                      CUBLASLT_EPILOGUE_DEFAULT, 1.5f, bits % 3 ? 0.5f : 0.0f, 1 + bits % 2});
    for (int trans = 0; trans < 4; trans++)
        for (cublasLtEpilogue_t e :
             {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
              CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB})
            multiply({CUDA_R_16BF, CUDA_R_16BF, trans & 1, trans >> 1, 0, 0, 0, e, 1, 0, 1});
}
/* What the callers of cuBLASLt get wrong. */
static void test_matmul_errors() {
    lt_objects lt;
    operand a(4, 5, 0, 1, CUDA_R_32F), b(5, 6, 0, 1, CUDA_R_32F), c(4, 6, 0, 1, CUDA_R_32F),
        wrong(4, 7, 0, 1, CUDA_R_32F);
    const float one = 1, zero = 0;
    cublasLtMatmulHeuristicResult_t result;
    int found = 1;
    auto multiply_with = [&](operand &x, operand &y, void *workspace, size_t bytes,
                             const cublasLtMatmulAlgo_t *algo) {
        return cublasLtMatmul(lt.handle, lt.desc, &one, x.memory.p, x.layout, y.memory.p, y.layout,
                              &zero, c.memory.p, c.layout, c.memory.p, c.layout, algo, workspace,
                              bytes, 0);
    };
    LT_OK(multiply_with(a, b, nullptr, 0, nullptr));
    CHECK(multiply_with(a, wrong, nullptr, 0, nullptr) != CUBLAS_STATUS_SUCCESS);
    CHECK(multiply_with(b, a, nullptr, 0, nullptr) != CUBLAS_STATUS_SUCCESS);
    int32_t short_size = 0;
    CHECK(cublasLtMatmulDescSetAttribute(lt.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &short_size,
                                         4) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(cublasLtMatmulAlgoGetHeuristic(lt.handle, lt.desc, a.layout, wrong.layout, c.layout,
                                         c.layout, lt.preference, 1, &result,
                                         &found) != CUBLAS_STATUS_SUCCESS ||
          found == 0);
    uint32_t split = 0;
    size_t written = 0;
    LT_OK(cublasLtMatmulAlgoGetHeuristic(lt.handle, lt.desc, a.layout, b.layout, c.layout, c.layout,
                                         lt.preference, 1, &result, &found));
    LT_OK(cublasLtMatmulAlgoConfigGetAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                               &split, sizeof split, &written));
    CHECK(written == 4);
#ifdef EMULATED
    split = 3;
    LT_OK(cublasLtMatmulAlgoConfigSetAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                               &split, sizeof split));
    device<char> workspace(3 * 24 * 4);
    CHECK_INT(multiply_with(a, b, workspace.p, workspace.count - 1, &result.algo),
              CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(multiply_with(a, b, &split, 4096, &result.algo), CUBLAS_STATUS_INVALID_VALUE);
    LT_OK(multiply_with(a, b, workspace.p, workspace.count, &result.algo));
    std::vector<unsigned char> got = c.memory.host();
    double want = 0;
    for (int i = 0; i < 5; i++) want += a.get(3, i, 0, false) * b.get(i, 5, 0, false);
    CHECK_NEAR(decode(got, c.at(3, 5, 0), CUDA_R_32F), want, 1e-6);
#endif
    CUDA_OK(cudaDeviceSynchronize());
}

#ifdef EMULATED

/* A float sum by atomics, whose order would show in its bits, does not compile. */
template <class T, class = void> struct adds_atomically { static const bool value = false; };
template <class T> struct adds_atomically<T, decltype((void)atomicAdd((T *)nullptr, T()))> {
    static const bool value = true;
};
static_assert(adds_atomically<int>::value && adds_atomically<u64>::value, "integers do");
static_assert(!adds_atomically<float>::value && !adds_atomically<double>::value, "floats do not");

/* ---- what kernels do wrong ---- */

/* A sum over the block. broken: the barrier between the rounds is missing. */
__global__ void reduction(const float *in, float *out, int broken) {
    __shared__ float sum[256];
    unsigned i = threadIdx.x;
    sum[i] = in[i];
    __syncthreads();
    for (unsigned step = 128; step > 0; step /= 2) {
        if (i < step) sum[i] += sum[i + step];
        if (!broken) __syncthreads();
    }
    if (i == 0) *out = sum[0];
}
static void test_missing_barrier() {
    std::vector<float> in(256);
    double want = 0;
    for (size_t i = 0; i < 256; i++) want += (double)(in[i] = (float)(i * i));
    int wrong = 0;
    FOR_SEEDS {
        device<float> x(in), out(1);
        NEO__LAUNCH(reduction, 1, 256, 0, nullptr, x.p, out.p, 0);
        CHECK_NEAR(out.host()[0], want, 0);
        NEO__LAUNCH(reduction, 1, 256, 0, nullptr, x.p, out.p, 1);
        float got = out.host()[0];
        wrong += !((double)got == want);
    }
    CHECK(wrong > SEEDS / 2);
}
/* Each thread reads what the one before wrote, with no barrier: right only in the natural order. */
__global__ void chain(int *out) {
    __shared__ int last[32];
    last[threadIdx.x] = threadIdx.x ? last[threadIdx.x - 1] + 1 : 0;
    out[threadIdx.x] = last[threadIdx.x];
}
static void test_order_shows() {
    int wrong = 0;
    FOR_SEEDS {
        device<int> out(32);
        NEO__LAUNCH(chain, 1, 32, 0, nullptr, out.p);
        bool right = out.host()[31] == 31;
        if (seed == 0) CHECK(right);
        wrong += !right;
    }
    CHECK_INT(wrong, SEEDS - 1);
}
__global__ void order_of_blocks(unsigned *out) { out[1 + atomicAdd(out, 1u)] = blockIdx.x; }
static void test_order_repeats() {
    std::vector<unsigned> first;
    for (int round = 0; round < 3; round++) {
        neo_emu_set_order(round < 2 ? 5 : 6);
        device<unsigned> out(std::vector<unsigned>(33, 0));
        NEO__LAUNCH(order_of_blocks, 32, 1, 0, nullptr, out.p);
        std::vector<unsigned> now = out.host();
        if (round == 0) first = now;
        else CHECK((now == first) == (round == 1));
        std::sort(now.begin() + 1, now.end());
        for (unsigned i = 0; i < 32; i++) CHECK_INT(now[1 + i], i);
    }
    neo_emu_set_order(0);
}

enum fault {
    EXITED_AT_BARRIER,
    OTHER_BARRIER,
    OTHER_KIND,
    WARP_EXITED,
    WARP_OTHER,
    WARP_AT_BARRIER,
    WARP_NOT_IN_MASK,
    WARP_NO_LANE,
    WARP_WIDTH,
    TRAP,
    FAULTS
};
__global__ void faulty(int kind, int *out) {
    int i = (int)threadIdx.x, odd = i == 37 && blockIdx.x == 1;
    switch (kind) {
    case EXITED_AT_BARRIER:
        if (odd) return;
        __syncthreads();
        break;
    case OTHER_BARRIER:
        if (odd) __syncthreads();
        else
            __syncthreads();
        break;
    case OTHER_KIND: (void)(odd ? __syncthreads_or(1) : __syncthreads_and(1)); break;
    case WARP_EXITED:
        if (odd) return;
        __syncwarp();
        break;
    case WARP_OTHER:
        if (odd) __syncwarp();
        else (void)__ballot_sync(~0u, 1);
        break;
    case WARP_AT_BARRIER:
        if (odd) __syncthreads();
        else __syncwarp();
        break;
    case WARP_NOT_IN_MASK: (void)__shfl_sync(odd ? 1u : ~0u, i, 0); break;
    case WARP_NO_LANE: (void)__any_sync(~0u, 1); break;
    case WARP_WIDTH: (void)__shfl_sync(~0u, i, 0, odd ? 12 : 16); break;
    case TRAP:
        if (odd) __trap();
        break;
    }
    out[i] = kind;
}
static void report_has(const char *part) {
    if (!strstr(neo_emu_last_report(), part))
        FAIL("report lacks '%s': %s", part, neo_emu_last_report());
}
static void test_divergence() {
    static const char *const says[FAULTS][2] = {
        {"waits at __syncthreads (", "for thread (37,0,0), which has exited"},
        {"is at __syncthreads (", "but thread ("},
        {"(37,0,0)", "__syncthreads_and ("},
        {"waits at __syncwarp (", "for thread (37,0,0), which has exited"},
        {"mask 0xffffffff, for thread (", "__syncwarp"},
        {"waits at __syncwarp (", "which waits at __syncthreads"},
        {"thread (37,0,0)", "lacks the thread's own lane"},
        {"__any_sync", "does not exist in a block of 72 threads"},
        {"thread (37,0,0)", "width 12"},
        {"thread (37,0,0)", "__trap"},
    };
    FOR_SEEDS {
        for (int kind = 0; kind < FAULTS; kind++) {
            int *out = nullptr;
            CUDA_OK(cudaMalloc(&out, 128 * sizeof(int)));
            NEO__LAUNCH(faulty, 2, kind == WARP_NO_LANE ? 72 : 128, 0, nullptr, kind, out);
            CUDA_OK(cudaGetLastError());
            if (cudaDeviceSynchronize() != cudaErrorLaunchFailure)
                FAIL("fault %d is not seen", kind);
            report_has("kernel faulty, block (");
            report_has(says[kind][0]);
            report_has(says[kind][1]);
            if (kind != TRAP) report_has("test_emulator.cpp:");
            if (kind != WARP_NO_LANE) report_has("block (1,0,0)");
            CHECK(cudaGetLastError() == cudaErrorLaunchFailure);        /* sticky */
            CHECK(cudaMemset(out, 0, 4) == cudaErrorLaunchFailure);
            CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
            CHECK(cudaFree(out) == cudaErrorLaunchFailure);
            neo_emu_reset();
            CHECK(neo_emu_last_report()[0] == 0);
            CUDA_OK(cudaDeviceSynchronize());
        }
    }
    CHECK_INT(neo_emu_live_bytes(), 0);
}

__global__ void see_junk(unsigned *out, const unsigned *fresh) {
    __shared__ unsigned kept[32];
    NEO__DYNAMIC_SHARED(unsigned, all);
    unsigned *o = out + (blockIdx.x * 32 + threadIdx.x) * 3;
    o[0] = kept[threadIdx.x];
    o[1] = all[threadIdx.x];
    o[2] = fresh[threadIdx.x];
    kept[threadIdx.x] = all[threadIdx.x] = 1;
}
static void test_junk() {
    device<unsigned> out(96 * 3), fresh(32);
    NEO__LAUNCH(see_junk, 3, 32, 128, nullptr, out.p, fresh.p);
    for (unsigned v : out.host()) CHECK_INT(v, 0xfffdfffdu);
    float f;
    unsigned junk = 0xfffdfffdu;
    memcpy(&f, &junk, 4);
    CHECK(f != f);
}

/* ---- what callers do wrong ---- */

static void test_missing_event() {
    int wrong = 0;
    FOR_SEEDS {
        cudaStream_t s1, s2;
        CUDA_OK(cudaStreamCreateWithFlags(&s1, cudaStreamNonBlocking));
        CUDA_OK(cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking));
        device<int> x(std::vector<int>(32, 0));
        std::vector<int> h(32, -1);
        int *pinned = nullptr;
        CUDA_OK(cudaMallocHost(&pinned, 128));
        NEO__LAUNCH(add, 1, 32, 0, s1, x.p, 32, 1);
        CUDA_OK(cudaMemcpyAsync(pinned, x.p, 128, cudaMemcpyDeviceToHost, s2));
        CHECK(pinned[0] != 1);            /* nothing runs before it must */
        CUDA_OK(cudaStreamSynchronize(s2));
        bool right = pinned[0] == 1;
        if (seed == 0) CHECK(right);
        wrong += !right;
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaFreeHost(pinned));
        CUDA_OK(cudaStreamDestroy(s1));
        CUDA_OK(cudaStreamDestroy(s2));
    }
    CHECK(wrong > 1 && wrong < SEEDS);
}
/* The source of a copy from pageable memory is read early or late. */
static void test_pageable_copies() {
    int early = 0, done_early = 0;
    FOR_SEEDS {
        cudaStream_t s;
        CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        int value = 1, back = 0;
        device<int> x(1);
        CUDA_OK(cudaMemcpyAsync(x.p, &value, sizeof value, cudaMemcpyHostToDevice, s));
        value = 2;
        CUDA_OK(cudaMemcpyAsync(&back, x.p, sizeof back, cudaMemcpyDeviceToHost, s));
        done_early += back != 0;
        CUDA_OK(cudaStreamSynchronize(s));
        CHECK(back == 1 || back == 2);
        early += back == 1;
        CUDA_OK(cudaStreamDestroy(s));
    }
    CHECK(early > 1 && early < SEEDS - 1);
    CHECK(done_early > 1 && done_early < SEEDS - 1);
}
static void test_bad_arguments() {
    device<int> x(8);
    int host[8];
    CUDA_IS(cudaMemcpy(x.p, host, 36, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue); /* too long */
    CUDA_IS(cudaMemcpy(x.p + 8, host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CUDA_IS(cudaMemcpy(host, host, 4, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue); /* wrong way */
    CUDA_IS(cudaMemcpy(x.p, host, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CUDA_IS(cudaMemset(host, 0, 4), cudaErrorInvalidValue);
    CUDA_IS(cudaFree(x.p + 1), cudaErrorInvalidValue);
    CUDA_IS(cudaFree(host), cudaErrorInvalidValue);
    CUDA_IS(cudaFreeHost(host), cudaErrorInvalidValue);
    CUDA_IS(cudaStreamSynchronize((cudaStream_t)(void *)host), cudaErrorInvalidResourceHandle);
    CUDA_IS(cudaEventDestroy((cudaEvent_t)(void *)host), cudaErrorInvalidResourceHandle);
    int *y = nullptr;
    CUDA_OK(cudaMalloc(&y, 16));
    CUDA_OK(cudaFree(y));
    CUDA_IS(cudaFree(y), cudaErrorInvalidValue);
    CUDA_IS(cudaMemcpy(y, host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    size_t bytes = 0;
    CUDA_OK(cub::DeviceScan::ExclusiveSum(nullptr, bytes, x.p, x.p, 8));
    device<char> small(bytes - 1);
    CUDA_IS(cub::DeviceScan::ExclusiveSum(small.p, bytes, x.p, x.p, 8), cudaErrorInvalidValue);
    CUDA_IS(cub::DeviceRadixSort::SortKeys(small.p, bytes, x.p, x.p, 8, 3, 33),
            cudaErrorInvalidValue);

    NEO__LAUNCH(add, 1, 1, 0, nullptr, host, 8, 1);       /* the host's memory */
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    report_has("kernel add: argument 0 points to memory of the host");
    neo_emu_reset();
    NEO__LAUNCH(add, 1, 1, 0, nullptr, y, 4, 1);          /* freed */
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    report_has("not allocated");
    neo_emu_reset();
    CUDA_OK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, x.p, x.p + 4, 5));
    device<char> storage(bytes);
    CUDA_OK(cub::DeviceRadixSort::SortKeys(storage.p, bytes, x.p, x.p + 4, 5));
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    neo_emu_reset();
}

/* Runs f in a child. What it wrote to stderr goes to text. True if it died, by a signal or a
 * sanitizer. */
static bool dies(void (*f)(), std::string *text) {
    int ends[2], status = 0;
    fflush(stdout);
    if (pipe(ends) != 0) return false;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        f();
        _exit(0);
    }
    close(ends[1]);
    char part[4096];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
        if (text) text->append(part, (size_t)n);
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0);
}
static volatile int sink;
static void read_device() {
    device<int> x(std::vector<int>(4, 1));
    sink = *(volatile int *)x.p;
}
static void write_device() {
    device<int> x(std::vector<int>(4, 1));
    CUDA_OK(cudaDeviceSynchronize());
    *(volatile int *)x.p = 1;
}
static void touch(void *p) { *(volatile int *)p = 1; }
static void host_function() {
    device<int> x(4);
    CUDA_OK(cudaLaunchHostFunc(nullptr, touch, x.p));
    CUDA_OK(cudaDeviceSynchronize());
}
static void nothing_wrong() {
    device<int> x(std::vector<int>(4, 1));
    int ok = 0;
    CUDA_OK(cudaLaunchHostFunc(nullptr, touch, &ok));
    CUDA_OK(cudaDeviceSynchronize());
}
static void test_host_access() {
    CHECK(!dies(nothing_wrong, nullptr));
    CHECK(dies(read_device, nullptr));
    CHECK(dies(write_device, nullptr));
    CHECK(dies(host_function, nullptr));
}

__global__ void write_at(char *p, long at) { p[at] = 1; }
__global__ void write_shared_at(long at) {
    NEO__DYNAMIC_SHARED(char, all);
    all[at] = 1;
}
static long overrun_at;
__global__ void write_static_at(char *p, long at) {
    __shared__ char all[100];
    all[at] = 1;
    *p = all[at];
}
static void overrun_static() {
    device<char> a(1);
    NEO__LAUNCH(write_static_at, 1, 1, 0, nullptr, a.p, overrun_at);
    cudaDeviceSynchronize();
}
static void overrun() {
    device<char> a(100), b(100), c(100);
    NEO__LAUNCH(write_at, 1, 1, 0, nullptr, b.p, overrun_at);
    cudaDeviceSynchronize();
}
static void overrun_shared() {
    NEO__LAUNCH(write_shared_at, 1, 64, 100, nullptr, overrun_at);
    cudaDeviceSynchronize();
}
static void use_after_free() {
    char **kept = nullptr;                /* an address that no argument shows */
    device<char> a(100);
    CUDA_OK(cudaMallocHost(&kept, sizeof *kept));
    *kept = a.p;
    CUDA_OK(cudaFree(a.p));
    struct indirect { static void kernel(char **p) { **p = 1; } };
    NEO__LAUNCH(indirect::kernel, 1, 1, 0, nullptr, kept);
    cudaDeviceSynchronize();
}
static void test_overruns() {
#ifdef NEO_EMU_ASAN
    std::string text;
    overrun_at = 99;
    CHECK(!dies(overrun, nullptr));
    CHECK(!dies(overrun_shared, nullptr));
    CHECK(!dies(overrun_static, nullptr));
    for (long at : {-1L, 100L, 103L}) {
        overrun_at = at;
        text.clear();
        CHECK(dies(overrun, &text));
        CHECK(text.find("use-after-poison") != std::string::npos);
        CHECK(text.find("write_at") != std::string::npos);
        text.clear();
        CHECK(dies(overrun_shared, &text));
        CHECK(text.find("heap-buffer-overflow") != std::string::npos);
#ifdef NEO_EMU_RED_ZONES
        if (at < 0) continue;             /* the red zone of static variables is behind them */
        text.clear();
        CHECK(dies(overrun_static, &text));
        CHECK(text.find("global-buffer-overflow") != std::string::npos ||
              text.find("out of bounds") != std::string::npos);   /* of -fsanitize=bounds */
#endif
    }
    text.clear();
    CHECK(dies(use_after_free, &text));
    CHECK(text.find("use-after-poison") != std::string::npos);
#else
    (void)use_after_free;
    overrun_at = 99;
    overrun();
    overrun_shared();
    overrun_static();
    CHECK(neo_emu_last_report()[0] == 0);
    for (long at : {-1L, 100L, 103L}) {
        overrun_at = at;
        overrun();
        report_has("of an allocation of 100 bytes was overwritten");
        neo_emu_reset();
        if (at < 0) continue;
        overrun_shared();
        report_has("wrote beyond its 100 bytes of dynamic shared memory");
        neo_emu_reset();
    }
#endif
}

/* ---- controls ---- */

static void test_memory() {
    CHECK_INT(neo_emu_live_bytes(), 0);
    CHECK_INT(neo_emu_live_allocations(), 0);
    CHECK_INT(neo_emu_live_pinned(), 0);
    CHECK_INT(neo_emu_live_objects(), 0);
    neo_emu_set_memory(1 << 20);
    size_t free_bytes = 0, total = 0;
    {
        device<char> a(600 << 10);
        CUDA_OK(cudaMemGetInfo(&free_bytes, &total));
        CHECK(total == 1 << 20 && free_bytes == 424 << 10);
        void *p = nullptr;
        CUDA_IS(cudaMalloc(&p, 500 << 10), cudaErrorMemoryAllocation);
        CHECK(p == nullptr);
        CUDA_IS(cudaMallocAsync(&p, (size_t)-1, nullptr), cudaErrorMemoryAllocation);
        CUDA_OK(cudaMallocAsync(&p, 424 << 10, nullptr));
        CHECK_INT(neo_emu_live_bytes(), 1 << 20);
        CHECK_INT(neo_emu_live_allocations(), 2);
        CUDA_OK(cudaFreeAsync(p, nullptr));
        CHECK_INT(neo_emu_live_allocations(), 2);         /* not yet */
        CUDA_OK(cudaMalloc(&p, 300 << 10));               /* needs it: waits */
        CUDA_OK(cudaFree(p));
    }
    neo_emu_set_memory((size_t)2 << 30);
    /* Addresses are not used again soon; many rounds do not run out. */
    void *first = nullptr, *again = nullptr;
    CUDA_OK(cudaMalloc(&first, 1000));
    CUDA_OK(cudaFree(first));
    for (int i = 0; i < 520; i++) {
        CUDA_OK(cudaMalloc(&again, i < 500 ? 50000 : (size_t)80 << 20));
        CHECK((i >= 500 || again != first) && (uintptr_t)again % 256 == 0);
        CUDA_OK(cudaFree(again));
    }
    cudaStream_t s;
    cudaEvent_t e;
    CUDA_OK(cudaStreamCreate(&s));
    CUDA_OK(cudaEventCreate(&e));
    CHECK_INT(neo_emu_live_objects(), 2);
    CUDA_OK(cudaStreamDestroy(s));
    CUDA_OK(cudaEventDestroy(e));
    CHECK_INT(neo_emu_live_objects(), 0);
    CHECK_INT(neo_emu_live_bytes(), 0);
}
static void test_no_device() {
    int count = -1;
    void *p = nullptr;
    neo_emu_set_device_count(0);
    CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
    CHECK(cudaMalloc(&p, 4) == cudaErrorNoDevice);
    CHECK(cudaDeviceSynchronize() == cudaErrorNoDevice);
    cublasLtHandle_t lt;
    CHECK_INT(cublasLtCreate(&lt), CUBLAS_STATUS_NOT_INITIALIZED);
    neo_emu_set_device_count(2);
    CUDA_OK(cudaSetDevice(1));
    CUDA_OK(cudaGetDeviceCount(&count));
    CHECK_INT(count, 2);
    neo_emu_set_device_count(1);
    CUDA_OK(cudaSetDevice(0));
    cudaGetLastError();
}
/* A small user of CUDA that cleans up whatever fails. */
static cudaError_t user(int *result) {
    int *x = nullptr;
    cudaStream_t s = nullptr;
    cudaError_t e = cudaStreamCreate(&s);
    if (e == cudaSuccess) e = cudaMalloc(&x, 256);
    if (e == cudaSuccess) e = cudaMemsetAsync(x, 0, 256, s);
    if (e == cudaSuccess) {
        NEO__LAUNCH(add, 1, 32, 0, s, x, 64, 3);
        e = cudaGetLastError();
    }
    if (e == cudaSuccess) e = cudaMemcpyAsync(result, x, 4, cudaMemcpyDeviceToHost, s);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s);
    cudaFree(x);
    if (s) cudaStreamDestroy(s);
    return e;
}
static void test_fail_after() {
    int failures = 0, n = 0;
    for (n = 1; n < 50; n++) {
        int result = 0;
        neo_emu_fail_after(n);
        cudaError_t e = user(&result);
        CHECK((e != cudaSuccess) == neo_emu_failed());
        CHECK_INT(neo_emu_live_bytes(), 0);
        CHECK_INT(neo_emu_live_objects(), 0);
        CHECK(e != cudaSuccess || result == 3);
        if (n == 2) CHECK(e == cudaErrorMemoryAllocation);
        bool done = !neo_emu_failed();
        neo_emu_fail_after(0);
        cudaGetLastError();
        if (done) break;
        failures++;
    }
    CHECK_INT(failures, 6);
}

/* Many launches in one process, so that fibers are used again under every shape of a block. */
static void test_shapes() {
    FOR_SEEDS {
        for (unsigned n = 1; n <= 1024; n = n * 3 + 1) {
            device<int> out(4 * n);
            NEO__LAUNCH(barriers, 1, n, n * sizeof(int), nullptr, out.p);
            CUDA_OK(cudaDeviceSynchronize());
            CHECK_INT(out.host()[4 * n - 1], (4 + n) % n * ((4 + n) % n));
        }
    }
}

#endif

int main(void) {
#ifndef EMULATED
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("skipped test_cuda_on_cpu: no GPU\n");
        return test_end("cuda/emulator/test_emulator");
    }
#endif
    RUN(test_indices);
    RUN(test_warps);
    RUN(test_blocks);
    RUN(test_atomics);
    RUN(test_numbers);
    RUN(test_halves);
    RUN(test_tensor_cores);
    RUN(test_streams);
    RUN(test_legacy_stream);
    RUN(test_copies);
    RUN(test_graphs);
    RUN(test_graph_nodes);
    RUN(test_capture_errors);
    RUN(test_limits);
    RUN(test_device_queries);
    RUN(test_cub_sort);
    RUN(test_cub_others);
    RUN(test_matmul);
    RUN(test_matmul_errors);
#ifdef EMULATED
    RUN(test_missing_barrier);
    RUN(test_order_shows);
    RUN(test_order_repeats);
    RUN(test_divergence);
    RUN(test_junk);
    RUN(test_missing_event);
    RUN(test_pageable_copies);
    RUN(test_bad_arguments);
    RUN(test_host_access);
    RUN(test_overruns);
    RUN(test_memory);
    RUN(test_no_device);
    RUN(test_fail_after);
    RUN(test_shapes);
#endif
    return test_end("cuda/emulator/test_emulator");
}
