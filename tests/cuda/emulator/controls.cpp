/* controls.cpp: the controls of cuda_on_cpu.h that tests in C use. */
#include "cuda_on_cpu.h"

extern "C" {
void emu_fail_after(int64_t n);
int emu_failed(void);
int64_t emu_live(void);
void emu_set_lazy(int on);
void emu_set_order(uint64_t seed);
int64_t emu_ranges(const char *name);
int64_t emu_queued(void);
int64_t emu_waits(void);
void emu_set_devices(int count);
void emu_set_memory(size_t bytes);
int emu_reached(int device, int peer);
void emu_fail_after(int64_t n) { neo_emu_fail_after(n); }
int emu_failed(void) { return neo_emu_failed(); }
void emu_set_lazy(int on) { neo_emu_set_lazy(on != 0); }
/* NVTX ranges of a name that have begun; NULL: those that are open. */
int64_t emu_ranges(const char *name) {
    return name ? neo_emu::ranges().begun[name] : neo_emu::ranges().open;
}
void emu_set_order(uint64_t seed) { neo_emu_set_order(seed + neo_emu_seed()); }
int64_t emu_queued(void) { return (int64_t)neo_emu_queued(); }
int64_t emu_waits(void) { return (int64_t)neo_emu_waits(); }
void emu_set_devices(int count) { neo_emu_set_device_count(count); }
void emu_set_memory(size_t bytes) { neo_emu_set_memory(bytes); }
int emu_reached(int device, int peer) { return neo_emu_reached(device, peer); }
/* Whatever was made on the device and not released. */
int64_t emu_live(void) {
    return (int64_t)neo_emu_live_allocations() + (int64_t)neo_emu_live_pinned() +
           (int64_t)neo_emu_live_objects();
}
}
