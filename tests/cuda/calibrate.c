/* calibrate.c: neo_calibrate of a context with a device. By a clock that moves a millisecond a look
   all that is measured takes as long, whatever it is: predictions of a layer are that, and what
   depends on the emulator's small sizes is what they make of it. A call of CUDA that fails leaves
   nothing behind, and the cluster as it was. */
#include "neo_cuda.cuh"
#include "neo_fsdp.h"
#include "test.h"

#if defined(EMULATED)
void emu_fail_after(int64_t n);
int emu_failed(void);
int64_t emu_live(void);
enum { CALLS = 1 }; /* between two looks */
#else
enum { CALLS = 8 };
#endif
static int64_t by_looks(void *user) { return ++*(int64_t *)user * 1000000; }
static void in_turn(int64_t count, neo_task_fn task, void *arg, void *user) {
    (void)user;
    for (int64_t i = 0; i < count; i++) task(arg, i, 0);
}
static neo_ctx *open_ctx(neo_device **device, int64_t *looks) {
    neo_ctx_desc d = {.threads = 1, .executor = {in_turn, looks, by_looks}};
    neo_ctx *ctx = NULL;
    CHECK_OK(neo_cuda_device_create(NULL, device));
    d.device = *device;
    CHECK_OK(neo_ctx_create(&d, &ctx));
    return ctx;
}
static void all_alike(void) {
    int64_t looks = 0;
    neo_device *device;
    neo_cluster c = {.ranks = 3, .host_row_us = 7};
    const double took = 1e-3 / CALLS;
    neo_ctx *ctx = open_ctx(&device, &looks);
    REQUIRE_OK(neo_calibrate(ctx, &c));
    const neo_calibration *by = &c.calibration;
    for (int i = 0; i < NEO_ROWS_COUNT; i++)
        for (int wide = 0; wide < 2; wide++) {
            const double *x = by->rows[i][wide];
            CHECK(x[0] >= 1 && x[1] >= x[0] && x[2] >= x[1] && x[2] < 1e9);
        }
    /* half of a call is that of its tables, of which all ids have the rest */
    const double call = took * c.memory_bandwidth, *table = by->rows[NEO_ROWS_LOOKUP_TABLE][0];
    CHECK_NEAR(table[0] / (call / 32), 1, 1e-9);
    CHECK_NEAR(by->rows[NEO_ROWS_LOOKUP][0][0] / by->rows[NEO_ROWS_ADAM][0][0], 1, 1e-9);
    for (int way = 0; way < NEO_LAYER_DOTS; way++) {
        CHECK(by->layer[way][0] > 0);
        CHECK_NEAR(neo_layer_seconds(&c, 3, 40, 50, (neo_layer_way)way, 0) / took, 1, 0.02);
    }
    for (int way = NEO_LAYER_DOTS; way < NEO_LAYER_COUNT; way++) CHECK(by->layer[way][0] > 0);
    const double positive[] = {by->lookup, by->update, by->copy, by->bucketed, by->id, by->sort,
                               by->row, by->kept, by->step, by->step_near, by->cache};
    for (size_t i = 0; i < sizeof positive / sizeof positive[0]; i++)
        CHECK(positive[i] > 0 && positive[i] < 1e12);
    CHECK(by->step >= by->step_near && by->others == 0 && by->bucketed == 1);
    CHECK(c.ranks == 3 && c.host_row_us == 7);
#if defined(EMULATED)
    CHECK_NEAR(c.memory_bandwidth / (8 * 16384 / 1e-3), 1, 1e-9);
    CHECK_NEAR(c.flops / (2 * 64.0 * 64 * 64 / 1e-3), 1, 1e-9);
    CHECK_NEAR(by->id / (call / 16), 1, 1e-9); /* of 16 ids */
#endif
    neo_ctx_destroy(ctx);
    neo_cuda_device_destroy(device);
}
#if defined(EMULATED)
static void failures(void) {
    static const int64_t at[] = {1, 9, 60, 200, 1000};
    const int64_t before = emu_live();
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        int64_t looks = 0;
        neo_device *device;
        neo_cluster c = {.ranks = 5}, same = c;
        neo_ctx *ctx = open_ctx(&device, &looks);
        emu_fail_after(at[i]);
        CHECK(neo_calibrate(ctx, &c) != NEO_OK && emu_failed());
        emu_fail_after(0);
        CHECK_INT(neo_ctx_live(ctx, NULL, 0), 0);
        CHECK(memcmp(&c, &same, sizeof c) == 0);
        neo_ctx_destroy(ctx);
        neo_cuda_device_destroy(device);
        CHECK_INT(emu_live(), before);
    }
}
#endif
int main(void) {
    RUN(all_alike);
#if defined(EMULATED)
    RUN(failures);
#endif
    return test_end("cuda/calibrate");
}
