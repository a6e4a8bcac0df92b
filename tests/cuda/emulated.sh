#!/bin/sh
# emulated.sh: neo_cuda.cuh on the processor (tests/cuda/emulator/cuda_on_cpu.h), under
# AddressSanitizer, with threads, warps, blocks and streams in another order than the natural one.
# EMU_SEEDS: in which; 0 is the natural one.

. tests/harness.sh
B=${B:-build}
log=$B/tmp/cuda.log
mkdir -p "$B/tmp"

found=0
for program in $(ls tests/cuda/*.c* | sed 's|.*/||; s|\.c.*||') comm_nccl shard_nccl; do
    program=$B/tests/cuda/$program
    [ -x "$program" ] || continue
    found=1
    for seed in ${EMU_SEEDS:-3}; do
        if NEO_EMU_SEED=$seed ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 "$program" \
            >"$log" 2>&1; then
            pass
        else
            fail "$program with NEO_EMU_SEED=$seed:"
            head -30 "$log"
        fi
    done
done
[ $found = 1 ] || skip "tests of neo_cuda.cuh: there is no C++ compiler"

# What a recorded step would not have: in neo_cuda.cuh launches are neo__cuda_launch, fills
# neo__cuda_fill; but what ranks exchange has a stream of its own.
count() { grep -cE "(^|[^A-Z_])$1" neo_cuda.cuh; }
if [ "$(count 'NEO__LAUNCH(_AS)?\(') $(count '<<<') $(count 'cudaMemsetAsync\(')" = '6 1 1' ]; then
    pass
else
    fail "neo_cuda.cuh: a launch or a fill that neo_cuda_graph_begin does not see: use" \
        "neo__cuda_launch, neo__cuda_fill"
fi

finish cuda/emulated
