#!/bin/sh
# mingw.sh: neo.h, the examples and the tests build for Windows with mingw-w64, as C and as C++.
# They are not run unless wine is there.

B=${B:-build}
. tests/harness.sh
W=$B/mingw
mkdir -p "$W"
gcc=x86_64-w64-mingw32-gcc
gxx=x86_64-w64-mingw32-g++

if ! have $gcc; then
    skip "Windows: no $gcc (Debian: gcc-mingw-w64-x86-64)"
    finish build/mingw
    exit
fi
printf '#define NEO_IMPLEMENTATION\n#include "neo_data.h"\n' >"$W/neo.c"
try "C" $gcc -std=c11 $warnings -O1 -I. -c -o "$W/neo.o" "$W/neo.c"
try "C, gnu17" $gcc -std=gnu17 $warnings -I. -fsyntax-only "$W/neo.c"
try "C, exported" $gcc -std=c11 $warnings -DNEO_SHARED -I. -fsyntax-only "$W/neo.c"
if have $gxx; then
    try "C++" $gxx -x c++ -std=c++17 $warnings -I. -fsyntax-only "$W/neo.c"
else
    skip "Windows, C++: no $gxx"
fi
AR=x86_64-w64-mingw32-ar
cross windows $gcc -static
if have wine; then
    model="--synthetic 500 --batch 100 --dim 8 --bottom 13-24-8 --top 24-1 --rows 300 --seed 5"
    same "dlrm under wine" "$(state_of wine "$W/windows/dlrm.exe" $model | tr -d '\r')" \
        "$(state_of "$B/dlrm" $model)"
else
    skip "Windows: built, not run: no wine"
fi
finish build/mingw
