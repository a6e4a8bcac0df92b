#!/bin/sh
# macos.sh: neo, the examples and programs build for macOS on both processors, against the headers
# and library names of Apple's C library that zig brings. They are not run. ZIG names the command
# (zig; "python3 -m ziglang" after `pip install ziglang`).

B=${B:-build}
. tests/harness.sh
W=$B/macos
mkdir -p "$W"
ZIG=${ZIG:-zig}
ZIG_GLOBAL_CACHE_DIR=$(cd "$W" && pwd)/cache ZIG_LOCAL_CACHE_DIR=$ZIG_GLOBAL_CACHE_DIR
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR

if ! $ZIG version >/dev/null 2>&1; then
    skip "macOS: no zig (pip install ziglang; ZIG='python3 -m ziglang')"
    finish build/macos
    exit
fi
for cpu in aarch64 x86_64; do
    cc="$ZIG cc -target $cpu-macos -fno-sanitize=undefined"
    AR="$ZIG ar"
    cross $cpu $cc
    # As C++ (without its library, which zig would build first). Neither system headers that come
    # first nor what the user defines hide anything.
    printf '#include <stdio.h>\n#include "examples/neo.c"\n' >"$W/after.c"
    to="$warnings -I. -O0 -c -o $W/neo.o"
    try "$cpu: C++" $cc -std=c++17 -nostdinc++ $to -x c++ examples/neo.c
    try "$cpu: after a system header" $cc -std=c11 $to "$W/after.c"
    try "$cpu: _POSIX_C_SOURCE" $cc -std=c11 -D_POSIX_C_SOURCE=200809L $to examples/neo.c
done
finish build/macos
