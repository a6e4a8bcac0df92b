#!/bin/sh
# avx512.sh: the AVX-512 kernels on a processor with AVX2 alone, by SIMDe: their bits are those of
# the other instruction sets. Products of bf16 in AVX-512 and AMX are not among them.

B=${B:-build}
MAKE=${MAKE:-make}
. tests/harness.sh
W=$B/tmp/avx512
rm -rf "$W"
mkdir -p "$W"
flags='-std=gnu11 -O1 -g0 -w -mavx2 -mfma -mf16c'
stop() {
    skip "AVX-512 by SIMDe: $1"
    finish build/avx512
    exit
}
grep -qw avx2 /proc/cpuinfo 2>/dev/null || stop "no processor with AVX2"
! grep -qw avx512f /proc/cpuinfo || stop "this processor has AVX-512: the other tests run on it"
have gcc || stop "no gcc"
echo '#include <simde/x86/avx512.h>' >"$W/probe.c"
gcc $flags -c -o "$W/probe.o" "$W/probe.c" 2>/dev/null || stop "no SIMDe (Debian: libsimde-dev)"

# A copy of neo whose AVX-512 kernels are compiled for AVX2, and always there.
cp -r Makefile ./*.h ./*.cuh examples tests bench "$W"
for header in neo.h neo_kernels.h; do
    sed -e 's|#include <immintrin.h>|#include "tests/build/avx512_on_cpu.h"|' \
        -e 's|^#elif __GNUC__ >= 11 .*defined(_IMMINTRIN_H_INCLUDED)|#elif 0|' \
        -e 's|target("avx2,fma,f16c,avx512[a-z0-9,]*")|target("avx2,fma,f16c")|' \
        -e 's/__builtin_cpu_supports("avx512\(f\|bw\|dq\|vl\)")/1/g' \
        -e 's/^\(#define NEO__DOT(c, x, y)\) __asm__.*/\1 ((void)(c), (void)(x), (void)(y))/' \
        -e 's/^\(#define NEO__LOAD16(x, m, p)\) __asm__.*/\1 ((void)(x), (void)(m), (void)(p))/' \
        -e 's/^\(#define NEO__SHUFFLE8(x, to)\) __asm__.*/\1 ((void)(x), (void)(to))/' \
        -e 's/^\(#define NEO__PIN(x)\) __asm__.*/\1 ((void)(x))/' $header >"$W/$header"
done
programs=
for name in bags/jagged bags/kept_grads_and_parts bags/lines bags/lookup bags/narrow_rows \
    bags/optim \
    comm/wire core/activation core/cross core/gemm core/layers core/losses core/operations \
    core/optim core/random core/tensor core/transformer golden/bags golden/dense; do
    programs="$programs build/tests/$name"
done
(cd "$W" && env -u B "$MAKE" --no-print-directory -k CC=gcc CFLAGS="$flags" build/dlrm \
    $programs) >"$W/make.log" 2>&1
for program in $programs; do
    if (cd "$W" && timeout 900 $program) >"$W/log" 2>&1; then
        pass
    else
        fail "$program: $(grep -E '^FAILED|error' "$W/log" "$W/make.log" | head -2)"
    fi
done
model="--synthetic 800 --batch 100 --dim 24 --bottom 13-40-24 --top 40-1 --rows 300
    --repro-shards 4"
for more in '' '--rows-dtype f16' '--rows-dtype i8 --optimizer sgd'; do
    for isa in avx512 scalar; do
        NEO_ISA=$isa "$W/build/dlrm" $model $more 2>"$W/err" | grep '^state' >"$W/$isa"
    done
    same "dlrm $more" "$(cat "$W/avx512")" "$(cat "$W/scalar")"
done
rm -rf "$W"
finish build/avx512
