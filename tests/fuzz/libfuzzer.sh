#!/bin/sh
# libfuzzer.sh: the parsers under libFuzzer and AddressSanitizer, FUZZ_SECONDS each (4 in `make
# check`), or, where FUZZ_RUNS is set, that many inputs shared among them (make fuzz
# FUZZ_RUNS=100000000 TEST_TIMEOUT=100000). A corpus grows in build/corpus and is used again; an
# input that crashes is left in build/crashes.

B=${B:-build}
MAKE=${MAKE:-make}
seconds=${FUZZ_SECONDS:-4}
. tests/harness.sh

if ! have clang; then
    skip "libFuzzer: no clang (make test still runs each target over its seeds)"
    finish fuzz/libfuzzer
    exit
fi
echo '#include <stdint.h>
#include <stddef.h>
int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n) {
    return (void)d, (void)n, 0;
}' >"$B/probe.c"
if ! clang -fsanitize=fuzzer,address -o "$B/probe" "$B/probe.c" 2>/dev/null; then
    skip "libFuzzer: clang has no runtime for it here (Debian: libclang-rt-dev)"
    finish fuzz/libfuzzer
    exit
fi
targets=$(ls tests/fuzz/*.c | sed "/targets/d; s|.*/\(.*\)\.c|$B/libfuzzer/\1|")
limit=-max_total_time=$seconds total=0
[ -z "$FUZZ_RUNS" ] || limit=-runs=$((FUZZ_RUNS / $(echo "$targets" | wc -l) + 1))
mkdir -p "$B/logs"
"$MAKE" --no-print-directory -k ${JOBS:+-j$JOBS} $targets >"$B/logs/libfuzzer.build" 2>&1
for program in $targets; do
    name=${program##*/}
    mkdir -p "$B/corpus/$name" "$B/crashes" "$B/logs"
    if [ ! -x "$B/libfuzzer/$name" ]; then
        fail "$name does not build: see $B/logs/libfuzzer.build"
        continue
    fi
    "$B/tests/fuzz/$name" --write "$B/corpus/$name" >/dev/null
    if ASAN_OPTIONS=allocator_may_return_null=1 "$B/libfuzzer/$name" "$limit" \
        -timeout=100 \
        -rss_limit_mb=3000 -print_final_stats=1 -artifact_prefix="$B/crashes/$name-" \
        "$B/corpus/$name" \
        >"$B/logs/$name.fuzz" 2>&1; then
        pass
        inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$B/logs/$name.fuzz")
        total=$((total + inputs))
        echo "fuzz: $name: $inputs inputs"
    else
        fail "$name: see $B/logs/$name.fuzz and $B/crashes"
        grep -E 'ERROR|SUMMARY|does not hold|Test unit written' "$B/logs/$name.fuzz" | head -5
    fi
done
echo "fuzz: $total inputs in all"
finish fuzz/libfuzzer
