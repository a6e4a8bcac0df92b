#define NEO_CUDA_IMPLEMENTATION
#include "neo_cuda.cuh"
