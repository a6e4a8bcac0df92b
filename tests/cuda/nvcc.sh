#!/bin/sh
# nvcc.sh: neo_cuda.cuh as nvcc compiles it, all warnings errors: optimized for GPUs from the oldest
# to the newest that nvcc knows (NEO_FULL=1, of make check: sm_90 alone), and not optimized with
# neo.h's implementation and tests. Optimized, what the source does not show fails: on sm_90
# registers spilled to memory, elsewhere many, more of them than a kernel's blocks leave room for,
# loops that wait for each load. GPUs get the code of compute_75 or compute_80, as the source
# differs between these two alone. What flags that change arithmetic do is left to the device's
# self-check. Its declarations compile as C, without CUDA. Nothing runs. build/tmp/nvcc/kernels_SM
# has a line for each kernel: its name, registers, bytes spilled, bytes of shared memory.

. tests/harness.sh
B=${B:-build}
W=$B/tmp/nvcc
rm -rf "$W" && mkdir -p "$W"
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
    known=$("$NVCC" --list-gpu-code 2>/dev/null)
    gpus= from=
    for sm in $([ "$NEO_FULL" = 1 ] && echo 90 || echo ${CUDA_SM:-75 80 86 89 90 100 120}); do
        case "$known" in *sm_$sm*) gpus="$gpus $sm" from="$from $((sm < 80 ? 75 : 80))" ;; esac
    done
    export NVCC W
    # each COMMAND N...: for each N, as $1, two at a time; logs are N.log.
    each() { command=$1 && shift && printf '%s\n' "$@" | sort -u |
        xargs -n 1 -P "${JOBS:-2}" sh -c "$command"' >"$W/$1.log" 2>&1' sh; }
    # shellcheck disable=SC2016,SC2086
    each '"$NVCC" -std=c++17 -Werror all-warnings -ptx -arch=compute_$1 -I. -o "$W/$1.ptx" \
        "$W/alone.cu"' $from || fail "nvcc: $(cat "$W"/75.log "$W"/80.log | head -20)"
    # shellcheck disable=SC2016,SC2086
    each '"$NVCC" -cubin -arch=sm_$1 -Xptxas -v -o "$W/$1.cubin" \
        "$W/$(($1 < 80 ? 75 : 80)).ptx"' $gpus
    # What the update of rows declares and is launched with is 48 KiB of shared memory at most.
    floats=$(sed -n 's/.*NEO__JOB_SHARED_FLOATS = \([0-9]*\).*/\1/p' neo.h)
    # Registers by families of kernels: the first that fits a name is its limit, which is what the
    # warps leave room for that its part of neo_cuda.cuh counts on. None may spill. Other GPUs than
    # sm_90, for which kernels are cut, may spill 256 bytes: of a few hundred kernels some do.
    limits='cub=168 part_sums=255 part_trees=128 L9neo_dtype9ELi32ELi8=255
        L9neo_dtype9ELi32ELi4=216 L9neo_dtype9ELi32ELi2=168
        attention_mma_kernelILi[0-9]+ELb.ELb.ELb1E=255
        attention_mma_back_kernelILi[0-9]+ELb.ELb.ELb.ELb1E=255
        attention_kernelILi1ELb0ELb0=80 bias_kernel=128 attention_back_kernelILi1E=128
        attention_mma_back_kernelILi(32|64)ELb0=168 attention_mma_kernelILi(32|64)E=128
        attention_kernel=128 attention_back=224 attention=255 interact_kernel=168
        bags_(pool|pool_any|update|step|copy_fours)_kernel=128
        (gemm|narrow|columns|norm|sample)_kernel=128 cut_kernel=128 .=80'
    for sm in $gpus; do
        awk '/Compiling entry function/ { split($0, name, "\047"); kernel = name[2] }
            /spill stores/ { spilled = $5 + $9 }
            kernel && /Used [0-9]+ registers/ {
                match($0, /Used [0-9]+/); used = substr($0, RSTART + 5, RLENGTH - 5)
                smem = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
                print kernel, used, spilled, smem; kernel = ""
            }' "$W/$sm.log" >"$W/kernels_$sm"
        over=$(awk -v limits="$limits" -v floats="${floats:-100000}" -v sm=$sm '
            BEGIN { n = split(limits, limit, /[ \n]+/) }
            {
                for (i = 1; i < n; i++) { split(limit[i], rule, "="); if ($1 ~ rule[1]) break }
                split(limit[i], rule, "=")
                if (sm == 90 && $2 > rule[2]) print $1 ": " $2 " registers, more than " rule[2]
                if ($3 > (sm == 90 ? 0 : 256)) print $1 ": " $3 " bytes are spilled"
                if ($1 !~ /bags_step_kernel/) next
                steps++
                if ($4 + 8 * floats > 49152) print $1 ": " $4 " bytes shared beside 8 x " floats
            }
            END { if (!steps) print "no kernel of the update" }' "$W/kernels_$sm")
        if [ -s "$W/$sm.cubin" ] && [ -z "$over" ]; then pass; else
            fail "sm_$sm: $(grep -i error "$W/$sm.log" | head -5)" && echo "$over"
        fi
    done
    ${PYTHON:-python3} tests/cuda/loads_in_flight.py "$W/90.cubin" bags_pool_kernel=8x16 \
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
    printf '#define NEO_IMPLEMENTATION\n#include "neo_cuda.cuh"\n' >"$W/whole.cu"
    for source in "$W/whole.cu" tests/cuda/*.cpp tests/cuda/emulator/test_emulator.cpp; do
        try "nvcc of $source" "$NVCC" -x cu -std=c++17 -Werror all-warnings -Xcicc -O0 \
            -gencode arch=compute_90,code=compute_90 -I. -Itests -c -o "$W/test.o" "$source"
    done
else
    skip "neo_cuda.cuh by nvcc: there is no $NVCC"
fi

finish cuda/nvcc
