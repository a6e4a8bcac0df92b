/* device.h: what --device says, for the examples. A program built with -DEXAMPLE_CUDA and linked with neo_cuda.cu
   (two lines, beside this file) knows `cuda`, the first GPU, and `cuda:1` and so on. */
#ifndef EXAMPLE_DEVICE_H
#define EXAMPLE_DEVICE_H
#include <stdlib.h>
#include <string.h>
#ifdef EXAMPLE_CUDA
#include "neo_cuda.cuh"
#endif

/* *device: NULL for the CPU. */
static inline neo_status device_open(const char *name, int exact, neo_device **device) {
    *device = NULL;
    if (strcmp(name, "cpu") == 0) return NEO_OK;
    if (strncmp(name, "cuda", 4) != 0 || (name[4] != 0 && name[4] != ':'))
        return neo_fail(NEO_ERR_ARG, "--device: '%s' is none of cpu, cuda, cuda:N", name);
#ifdef EXAMPLE_CUDA
    char *end = NULL;
    long ordinal = name[4] ? strtol(name + 5, &end, 10) : 0;
    if (end && (end == name + 5 || *end || ordinal < 0 || ordinal > 1023))
        return neo_fail(NEO_ERR_ARG, "--device: '%s' does not end in the number of a GPU", name);
    neo_cuda_desc desc = {(int)ordinal, exact};
    return neo_cuda_device_create(&desc, device);
#else
    (void)exact;
    return neo_fail(NEO_ERR_UNSUPPORTED,
                    "--device: this program was built without CUDA; `make cuda` builds one with it");
#endif
}
static inline void device_close(neo_device *device) {
#ifdef EXAMPLE_CUDA
    neo_cuda_device_destroy(device);
#else
    (void)device;
#endif
}
#endif
