#!/bin/sh
# nvcc.sh: neo_cuda.cuh as nvcc compiles it, alone and with neo.h's implementation, all warnings
# errors: once optimized, for sm_90, and not optimized for GPUs from the oldest to the newest that
# nvcc knows (NEO_FULL=1, of make check, leaves these out). Optimized, what the source does not show
# fails: registers spilled to memory, more of them than a kernel's blocks leave room for, loops that
# wait for each load. What flags that change arithmetic do is left to the device's self-check. Its
# declarations compile as C, without CUDA. Nothing runs.

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

cat >"$W/api.c" <<'END'
#include "neo_cuda.cuh"
int main(void) {
    neo_device *d = 0;
    neo_cuda_device_destroy(d);
    return 0;
}
END
try 'the declarations as C' ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -I. -c -o \
    "$W/api.o" "$W/api.c"

if have "$NVCC"; then
    printf '#define NEO_CUDA_IMPLEMENTATION\n#include "neo_cuda.cuh"\n' >"$W/alone.cu"
    printf '#define NEO_IMPLEMENTATION\n#include "neo_cuda.cuh"\n' >"$W/whole.cu"
    codes=
    known=$("$NVCC" --list-gpu-code 2>/dev/null)
    for sm in ${CUDA_SM:-75 80 86 89 100 120}; do
        case "$known" in *sm_$sm*) codes="$codes -gencode arch=compute_$sm,code=sm_$sm" ;; esac
    done
    quick='-std=c++17 -Werror all-warnings -Xcicc -O0 -Xptxas -O0'
    try "nvcc for sm_90, optimized" "$NVCC" -std=c++17 -Werror all-warnings -Xptxas -v -arch=sm_90 \
        -I. -c -o "$W/alone.o" "$W/alone.cu"
    # kernels: a line for each: its name, registers, bytes spilled, bytes of shared memory.
    awk '/Compiling entry function/ { split($0, name, "\047"); kernel = name[2] }
        /spill stores/ { spilled = $5 + $9 }
        kernel && /Used [0-9]+ registers/ {
            match($0, /Used [0-9]+/); used = substr($0, RSTART + 5, RLENGTH - 5)
            smem = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
            print kernel, used, spilled, smem; kernel = ""
        }' "$W/log" >"$W/kernels"
    # Of the update of rows, what it declares and what it is launched with are 48 KiB of shared
    # memory at most.
    floats=$(sed -n 's/.*NEO__JOB_SHARED_FLOATS = \([0-9]*\).*/\1/p' neo.h)
    most=$(awk '/bags_step_kernel/ && $4 > most { most = $4 } END { print most + 0 }' "$W/kernels")
    if [ "$most" -gt 0 ] && [ $((most + 2 * 4 * ${floats:-100000})) -le 49152 ]; then
        pass
    else
        fail "the update of rows declares $most bytes of shared memory beside 8 x $floats, of 49152"
    fi
    # Registers by families of kernels: the first that fits a name is its limit, which is what the
    # warps leave room for that its part of neo_cuda.cuh counts on. None may spill.
    over=$(awk -v limits='cub=128 part_sums=255 part_trees=128 L9neo_dtype9ELi32ELi8=255
            L9neo_dtype9ELi32ELi4=216 L9neo_dtype9ELi32ELi2=168
            attention_mma_kernelILi[0-9]+ELb.ELb.ELb1E=255
            attention_mma_back_kernelILi[0-9]+ELb.ELb.ELb.ELb1E=255
            attention_kernelILi1ELb0ELb0=80 bias_kernel=128 attention_back_kernelILi1E=128
            attention_mma_back_kernelILi(32|64)ELb0=168 attention_mma_kernelILi(32|64)E=128
            attention_kernel=128 attention_back=224 attention=255 interact_kernel=168
            bags_(pool|pool_any|update|step|copy_fours)_kernel=128
            (gemm|narrow|columns|norm|sample)_kernel=128
            cut_kernel=128 .=80' '
        BEGIN { n = split(limits, limit, /[ \n]+/) }
        {
            for (i = 1; i < n; i++) { split(limit[i], rule, "="); if ($1 ~ rule[1]) break }
            split(limit[i], rule, "=")
            if ($2 > rule[2]) print $1 ": " $2 " registers, more than " rule[2]
            if ($3 > 0) print $1 ": " $3 " bytes are spilled"
        }' "$W/kernels")
    if [ -s "$W/kernels" ] && [ -z "$over" ]; then pass; else fail "kernels:" && echo "$over"; fi
    ${PYTHON:-python3} tests/cuda/loads_in_flight.py "$W/alone.o" bags_pool_kernel=8x16 \
        bags_update_kernel=8x16 bags_step_kernel=8 bags_part_sums=32x16 \
        bags_copy_fours_kernel=8 bags_copy_kernel=8 bags_pool_any_kernelILi1E=8 \
        bags_pool_any_kernelILi4E=8x16 embedding_back_kernelILi4E=8x16 >"$W/loads" 2>&1
    case $? in
    0) pass ;;
    77 | 127) skip "loads in flight: $(cat "$W/loads")" ;;
    *) fail "loads in flight:" && cat "$W/loads" ;;
    esac
    if [ "$NEO_FULL" = 1 ]; then
        finish cuda/nvcc
        exit
    fi
    # shellcheck disable=SC2086
    try "nvcc for$codes" "$NVCC" $quick $codes -I. -c -o "$W/old.o" "$W/alone.cu"
    # shellcheck disable=SC2086
    try "nvcc with neo.h's implementation" "$NVCC" $quick -arch=sm_90 -I. -c -o "$W/whole.o" \
        "$W/whole.cu"
    for source in tests/cuda/*.cpp tests/cuda/emulator/test_emulator.cpp; do
        # shellcheck disable=SC2086
        try "nvcc of $source" "$NVCC" -x cu $quick -arch=sm_90 -I. -Itests -c -o "$W/test.o" \
            "$source"
    done
else
    skip "neo_cuda.cuh by nvcc: there is no $NVCC"
fi

finish cuda/nvcc
