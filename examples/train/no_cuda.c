/* no_cuda.c: what examples/gpu.c calls of neo_cuda.cuh, for a machine without the CUDA toolkit:
   there is no device, and the CPU computes. */
#include "neo_cuda.cuh"

neo_status neo_cuda_device_create(const neo_cuda_desc *desc, neo_device **device) {
    (void)desc;
    *device = NULL;
    return neo_fail(NEO_ERR_UNSUPPORTED, "this program was built without CUDA");
}
void neo_cuda_device_destroy(neo_device *device) { (void)device; }
neo_status neo_cuda_graph_create(neo_device *device, const neo_cuda_graph_desc *desc,
                                 neo_cuda_graph **graph) {
    (void)desc, (void)graph;
    return neo_cuda_device_create(NULL, &device);
}
void neo_cuda_graph_destroy(neo_cuda_graph *graph) { (void)graph; }
neo_status neo_cuda_graph_begin(neo_cuda_graph *graph) { return (void)graph, NEO_ERR_UNSUPPORTED; }
neo_status neo_cuda_graph_end(neo_cuda_graph *graph) { return (void)graph, NEO_ERR_UNSUPPORTED; }
neo_status neo_cuda_graph_wait(neo_cuda_graph *graph) { return (void)graph, NEO_ERR_UNSUPPORTED; }
