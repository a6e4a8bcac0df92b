/* fake_nccl.h: faults on purpose in the CUDA runtime and NCCL of fake_nccl.c. For tests only. */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <stddef.h>
#include <stdint.h>

enum { FAKE_DEVICES = 16 };

/* As if just loaded: no faults, no delays. Nothing may be alive. */
void fake_reset(void);
/* Every task of a stream takes up to this long; a group of NCCL is in progress as long, before it
   is on its stream. */
void fake_delay_us(int us);

/* The nth call (from now, counted from 0) of this function on this device gives `error` (a
   cudaError_t or an ncclResult_t). Device -1: on any. */
void fake_fail(const char *function, int device, int nth, int error);
/* How often the function was called there since fake_reset. */
int fake_calls(const char *function, int device);
/* The nth group of transfers of the device from now... */
void fake_async_error(int device, int nth, int result); /* fails: NCCL finds out while it runs */
void fake_lose_group(int device, int nth); /* never moves anything; only an abort ends it */
void fake_hang_group(int device, int nth);              /* nor does an abort: the device hangs */
int fake_hangs(void); /* the current device does */
/* All devices are one GPU. */
void fake_share_gpu(void);
/* A transfer whose ends are of different sizes never ends, as it may. */
void fake_let_sizes_differ(void);
/* From now on a kernel of NCCL has its device alone until its peers have run theirs, and delays are
   those of the seed. Opposite orders on two devices are then a deadlock: NCCL fails on both, and
   fake_deadlocks counts it. */
void fake_one_kernel(uint64_t seed);
int fake_deadlocks(void);
/* The device never joins a communicator. */
void fake_never_join(int device);

/* Objects that were made and are not destroyed: memory, pinned memory, streams, events,
   communicators. The text lists them; it lives until the next call. */
int fake_live(const char **text);

/* Device memory as the processor may touch it, for a kernel that a test plays: [p, p + bytes). */
void *fake_memory(const void *p, size_t bytes);
/* Put fn(arg) on a stream, as a kernel is. */
void fake_launch(void *stream, void (*fn)(void *arg), void *arg);

#endif
