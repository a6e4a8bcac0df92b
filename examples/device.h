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
/* A training step on a GPU as one launch: the calls between begin and end. A graph that is NULL (the CPU; --graph off)
   leaves calls as they are. copy_bytes: of a batch. */
#ifdef EXAMPLE_CUDA
typedef neo_cuda_graph device_graph;
#else
typedef struct device_graph device_graph;
#endif
static inline neo_status graph_open(neo_device *device, size_t copy_bytes, device_graph **graph) {
    *graph = NULL;
#ifdef EXAMPLE_CUDA
    neo_cuda_graph_desc desc = {copy_bytes};
    if (device) return neo_cuda_graph_create(device, &desc, graph);
#else
    (void)device, (void)copy_bytes;
#endif
    return NEO_OK;
}
static inline neo_status graph_begin(device_graph *graph) {
#ifdef EXAMPLE_CUDA
    if (graph) return neo_cuda_graph_begin(graph);
#endif
    (void)graph;
    return NEO_OK;
}
static inline neo_status graph_end(device_graph *graph) {
#ifdef EXAMPLE_CUDA
    if (graph) return neo_cuda_graph_end(graph);
#endif
    (void)graph;
    return NEO_OK;
}
static inline neo_status graph_wait(device_graph *graph) {
#ifdef EXAMPLE_CUDA
    if (graph) return neo_cuda_graph_wait(graph);
#endif
    (void)graph;
    return NEO_OK;
}
static inline void graph_close(device_graph *graph) {
#ifdef EXAMPLE_CUDA
    neo_cuda_graph_destroy(graph);
#else
    (void)graph;
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
