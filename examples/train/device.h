/* device.h: the device of a rank, as --device names it, and the graph of a training step on it.

   A program built with -DEXAMPLE_CUDA and linked with ../neo_cuda.cu knows `cuda`: the GPUs of a
   machine in turn, one for each rank (if there are fewer, ranks share them), and `cuda:1`: that GPU
   for all. device_open is for neo_comm_desc.open_device. */
#ifndef EXAMPLE_DEVICE_H
#define EXAMPLE_DEVICE_H
#include <stdlib.h>
#include <string.h>
#ifdef EXAMPLE_CUDA
#include "neo_cuda.cuh"
#endif

typedef struct device_choice {
    const char *name;
    int exact, tf32;
} device_choice;

static inline neo_status device_check(const char *name) {
    if (strcmp(name, "cpu") != 0 &&
        (strncmp(name, "cuda", 4) != 0 || (name[4] != 0 && name[4] != ':')))
        return neo_fail(NEO_ERR_ARG, "--device: '%s' is none of cpu, cuda, cuda:N", name);
    return NEO_OK;
}
/* How many devices a name stands for. */
static inline int device_count(const char *name) {
#ifdef EXAMPLE_CUDA
    if (strcmp(name, "cuda") == 0 && neo_cuda_device_count() > 1) return neo_cuda_device_count();
#endif
    (void)name;
    return 1;
}
/* user: a device_choice. *device: NULL for the CPU. */
static inline neo_status device_open(int rank, int local, void *user, neo_device **device) {
    const device_choice *choice = (const device_choice *)user;
    (void)rank;
    *device = NULL;
    if (strcmp(choice->name, "cpu") == 0) return NEO_OK;
#ifdef EXAMPLE_CUDA
    const char *number = choice->name + 4;
    char *end = NULL;
    int count = neo_cuda_device_count();
    long ordinal = *number ? strtol(number + 1, &end, 10) : count > 0 ? local % count : 0;
    if (end && (end == number + 1 || *end || ordinal < 0 || ordinal > 1023))
        return neo_fail(NEO_ERR_ARG, "--device: '%s' does not end in the number of a GPU",
                        choice->name);
    neo_cuda_desc desc = {(int)ordinal, choice->exact, choice->tf32};
    return neo_cuda_device_create(&desc, device);
#else
    (void)local;
    return neo_fail(NEO_ERR_UNSUPPORTED, "--device: this program was built without CUDA; "
                                         "`make cuda` builds one with it");
#endif
}
static inline void device_close(neo_device *device) {
#ifdef EXAMPLE_CUDA
    neo_cuda_device_destroy(device);
#else
    (void)device;
#endif
}
/* A training step on a GPU as one launch: the calls between begin and end. Without a graph (NULL:
   the CPU, or --graph off) the calls run as they are. copy_bytes: of a batch. lanes: of
   graph_lane and graph_join, which are neo_cuda_graph_lane and neo_cuda_graph_join. */
#ifdef EXAMPLE_CUDA
typedef neo_cuda_graph device_graph;
#else
typedef struct device_graph device_graph;
#endif
static inline neo_status graph_open(neo_device *device, size_t copy_bytes, int lanes,
                                    device_graph **graph) {
    *graph = NULL;
#ifdef EXAMPLE_CUDA
    neo_cuda_graph_desc desc = {copy_bytes, 0, lanes};
    if (device) return neo_cuda_graph_create(device, &desc, graph);
#else
    (void)device, (void)copy_bytes, (void)lanes;
#endif
    return NEO_OK;
}
static inline void graph_lane(device_graph *graph, int lane) {
#ifdef EXAMPLE_CUDA
    if (graph) neo_cuda_graph_lane(graph, lane);
#endif
    (void)graph, (void)lane;
}
static inline void graph_join(device_graph *graph) {
#ifdef EXAMPLE_CUDA
    if (graph) neo_cuda_graph_join(graph);
#endif
    (void)graph;
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
/* What a GPU has done so far, in a line; nothing of the CPU. */
enum { DEVICE_TEXT = 512 };
static inline void device_text(const neo_device *device, const device_graph *graph, char *text) {
    text[0] = 0;
#ifdef EXAMPLE_CUDA
    if (!device) return;
    neo_cuda_graph_stats s = {0};
    if (graph) s = neo_cuda_graph_get_stats(graph);
    const neo_cuda_stats d = neo_cuda_get_stats(device);
    snprintf(text, DEVICE_TEXT,
             "cuda:%d: %llu steps in %llu launches (%llu steps were split) of %llu nodes, %llu "
             "graphs, %llu updates, %llu launches without room for a graph; %llu calls outside, "
             "%llu waits, %llu products without cuBLASLt, %llu epilogues without it, %llu "
             "attentions of f32 for bf16, %llu KB to the device, %llu KB back\n",
             neo_cuda_ordinal(device), (unsigned long long)s.steps, (unsigned long long)s.launches,
             (unsigned long long)s.split, (unsigned long long)s.nodes,
             (unsigned long long)s.graphs, (unsigned long long)s.updates,
             (unsigned long long)s.plain, (unsigned long long)d.launches,
             (unsigned long long)d.waits, (unsigned long long)d.own_products,
             (unsigned long long)d.own_epilogues, (unsigned long long)d.wide_attention,
             (unsigned long long)d.sent / 1000, (unsigned long long)d.fetched / 1000);
#else
    (void)device, (void)graph;
#endif
}
/* The group that moves the memory of devices: over NCCL, in a program that has it, between ranks
   with a GPU each; else comm. sums: of --sums. Destroy it with device_group_end. Collective. */
static inline neo_status device_group(neo_comm *comm, const char *sums, neo_comm **group) {
    const int tree = strcmp(sums, "tree") == 0;
    *group = comm;
#if defined(EXAMPLE_CUDA) && defined(NEO_COMM_NCCL)
    const neo_device *device = neo_ctx_device(neo_comm_ctx(comm));
    if (device && neo_comm_size(comm) > 1) {
        neo_status status = neo_comm_create_nccl(comm, neo_cuda_ordinal(device), NULL, group);
        if (status != NEO_ERR_UNSUPPORTED || !tree) return status;
        *group = comm;
        if (neo_comm_rank(comm) == 0)
            neo_log(neo_comm_ctx(comm), NEO_LOG_INFO, "%s: tensors move without NCCL",
                    neo_last_error());
    }
#endif
    if (tree) return NEO_OK;
    return neo_fail(NEO_ERR_UNSUPPORTED, "--sums nccl: for several ranks with a GPU each, in a "
                                         "program with NCCL; `make nccl` builds one");
}
static inline void device_group_end(neo_comm *comm, neo_comm *group) {
    if (group != comm) neo_comm_destroy(group);
}
#endif
