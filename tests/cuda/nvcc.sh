#!/bin/sh
# nvcc.sh: neo_cuda.cuh as nvcc compiles it, for sm_80 and sm_90, alone and with neo.h's
# implementation, all warnings errors; what flags that change arithmetic do is left to the device's
# self-check. Its declarations compile as C, without CUDA. Nothing runs.

. tests/harness.sh
B=${B:-build}
W=$B/tmp/nvcc
mkdir -p "$W"
NVCC=${NVCC:-nvcc}

try() {
    label=$1
    shift
    if "$@" >"$W/log" 2>&1; then pass; else fail "$label:" && head -20 "$W/log"; fi
}

printf '#include "neo_cuda.cuh"\nint main(void) { neo_device *d = 0; neo_cuda_device_destroy(d); return 0; }\n' >"$W/api.c"
try 'the declarations as C' ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -I. -c -o \
    "$W/api.o" "$W/api.c"

if have "$NVCC"; then
    printf '#define NEO_CUDA_IMPLEMENTATION\n#include "neo_cuda.cuh"\n' >"$W/alone.cu"
    printf '#define NEO_IMPLEMENTATION\n#include "neo_cuda.cuh"\n' >"$W/whole.cu"
    # Of the update of rows, what it declares and what it is launched with are 48 KiB of shared
    # memory at most.
    floats=$(sed -n 's/.*NEO__JOB_SHARED_FLOATS = \([0-9]*\).*/\1/p' neo.h)
    for sm in ${CUDA_SM:-80 90}; do
        try "nvcc for sm_$sm" "$NVCC" -std=c++17 -Werror all-warnings -Xptxas -v -arch=sm_$sm -I. \
            -c -o "$W/alone.o" "$W/alone.cu"
        most=$(awk '/Compiling entry function/ { step = /bags_step_kernel/ }
            step && match($0, /[0-9]+ bytes smem/) { n++; b = substr($0, RSTART) + 0; if (b > most) most = b }
            END { print n + 0 ? most : "none" }' "$W/log")
        if [ "$most" != none ] && [ $((most + 2 * 4 * ${floats:-100000})) -le 49152 ]; then
            pass
        else
            fail "sm_$sm: the update of rows declares $most bytes of shared memory beside 2 x 4 x $floats, of 49152"
        fi
    done
    try "nvcc with neo.h's implementation" "$NVCC" -std=c++17 -Werror all-warnings -arch=sm_90 \
        -I. -c -o "$W/whole.o" \
        "$W/whole.cu"
    for source in tests/cuda/*.cpp tests/cuda/emulator/test_emulator.cpp; do
        try "nvcc of $source" "$NVCC" -x cu -std=c++17 -Werror all-warnings -arch=sm_90 -I. \
            -Itests -c -o "$W/test.o" "$source"
    done
else
    skip "neo_cuda.cuh by nvcc: there is no $NVCC"
fi

finish cuda/nvcc
