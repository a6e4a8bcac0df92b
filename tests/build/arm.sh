#!/bin/sh
# arm.sh: neo on AArch64 (NEON), cross-built with aarch64-linux-gnu-gcc and run under qemu: the
# examples give the digests of this machine, and the tests pass. In `make test` only the digests and
# a few tests; `make arm` (ARM_ALL=1) runs them all.

B=${B:-build}
MAKE=${MAKE:-make}
A=$B/arm
. tests/harness.sh

if ! have aarch64-linux-gnu-gcc; then
    skip "AArch64: no aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu)"
    finish build/arm
    exit
fi
qemu=
for q in qemu-aarch64 qemu-aarch64-static; do
    if [ -z "$qemu" ] && have $q; then qemu=$q; fi
done

programs=
for source in tests/core/*.c tests/bags/*.c tests/data/*.c tests/files/*.c tests/golden/*.c \
    tests/comm/*.c tests/shard/*.c tests/fsdp/*.c; do
    name=${source#tests/} name=${name%.c}
    case $name in
    data/make_npy | data/make_synthetic | files/write_safetensors) continue ;;
    comm/fake_nccl | comm/fault_rank) continue ;;
    core/math | core/gemm | core/bf16 | core/tensor | core/layers | core/optim) ;;
    bags/lookup | golden/gpt) ;;
    *) [ -n "$ARM_ALL" ] || continue ;;
    esac
    programs="$programs $A/tests/$name"
done
# Keep going: a program that does not build is reported below. Emulated, a test runs as much as
# under a sanitizer.
thin=-DTEST_WATCHED=1
[ -z "$ARM_ALL" ] || thin=
"$MAKE" --no-print-directory -k ${JOBS:+-j$JOBS} B="$A" CC=aarch64-linux-gnu-gcc \
    AR=aarch64-linux-gnu-ar CFLAGS="-O1 -static $thin" CHECKED=1 \
    "$A/dlrm" "$A/custom" "$A/bags" $programs >"$B/logs/arm.build" 2>&1 || true
for program in "$A/dlrm" "$A/custom" "$A/bags" $programs; do
    if [ -x "$program" ]; then pass; else fail "$program does not build (see $B/logs/arm.build)"; fi
done
if [ -z "$qemu" ]; then
    skip "AArch64: built, not run: no qemu-aarch64 (Debian: qemu-user)"
    finish build/arm
    exit
fi

model="--synthetic 800 --batch 100 --dim 8 --bottom 13-24-8 --top 24-1 --rows 300 --seed 5"
model="$model --repro-shards 4"
for optimizer in adagrad adam lamb 'sgd --dtype bf16'; do
    ours=$("$B/dlrm" $model --optimizer $optimizer --threads 2 2>/dev/null | grep '^state')
    for isa in best scalar; do
        theirs=$(NEO_ISA=$isa timeout 900 $qemu "$A/dlrm" $model --optimizer $optimizer --threads \
            2 2>/dev/null | grep '^state')
        same "dlrm, $optimizer, $isa" "$theirs" "$ours"
    done
done
for program in $programs; do
    [ -x "$program" ] || continue
    name=${program#"$A/tests/"}
    log=$B/logs/arm/$name.log
    mkdir -p "${log%/*}"
    timeout 600 $qemu "$program" >"$log" 2>&1
    status=$?
    line=$(grep -E "^[a-z0-9_/]+: [0-9]+ passed" "$log" | tail -1)
    if [ $status = 0 ] && [ -n "$line" ]; then
        pass
    else
        fail "$name under $qemu: status $status: $(tail -1 "$log")"
        grep -E '^FAILED|^  ' "$log" | head -6
    fi
done
finish build/arm
