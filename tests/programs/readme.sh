#!/bin/sh
# readme.sh: every code block of README.md compiles as printed, and programs run.
#
# ```c blocks with a main are built with neo's headers beside them and run; others must compile inside a file that
# holds the implementation (declarations and functions as they stand, statements as a function's body).
# ```c++ blocks compile as C++17. ```sh blocks are checked for `make` targets and dlrm options that exist.

B=${B:-build}
CC=${CC:-cc}
. tests/harness.sh
W=$B/tmp/readme
rm -rf "$W"
mkdir -p "$W"
cp neo.h neo_comm.h neo_fsdp.h neo_cuda.cuh "$W/"

if grep -nE '@[A-Z_]+@' README.md; then fail "a placeholder is left"; else pass; fi

# One file per block: <number>.<language>; the first line says the README's line.
awk -v dir="$W" '
    /^```/ && !open { open = 1; n++; language = substr($0, 4); sub(/[ \t].*/, "", language)
        if (language == "") language = "text"; file = sprintf("%s/%02d.%s", dir, n, language)
        printf "" > file; line[n] = NR; print NR > (file ".line"); next }
    /^```/ { open = 0; close(file); next }
    open { print >> file }' README.md

programs=0
for file in "$W"/*.c "$W"/*.c++ "$W"/*.cpp; do
    [ -f "$file" ] || continue
    at="README.md:$(cat "$file.line")"
    case $file in
    *.c) build="$CC -std=c11 -x c" ;;
    *) build="$CC -std=c++17 -x c++" ;;
    esac
    if grep -q 'neo_cuda.cuh' "$file"; then # linked with the device that make test emulates, if there is one
        if ! [ -f "$B/tests/emulated_cuda.o" ]; then
            skip "$at: no emulated device was built"
        elif (cd "$W" && $CC -std=c11 -Wall -Wextra -x c -c -o gpu.o "$(basename "$file")") >"$W/log" 2>&1 &&
            ${CXX:-c++} -fsanitize=address -o "$W/gpu" "$W/gpu.o" "$B/tests/emulated_cuda.o" -lm -pthread >>"$W/log" 2>&1 &&
            ASAN_OPTIONS=detect_leaks=0 timeout 120 "$W/gpu" >"$W/gpu.out" 2>"$W/log"; then
            sed 's/neo_device \*gpu = NULL;/& (void)gpu;/; s/if (neo_cuda_device_create.*$/(void)which;/; /neo_cuda_device_destroy/d' \
                "$file" >"$W/cpu.c"
            (cd "$W" && $CC -std=c11 -O1 -o cpu cpu.c -lm -pthread && ./cpu >cpu.out) >>"$W/log" 2>&1
            same "$at: a GPU's state" "$(grep '^state' "$W/cpu.out")" "$(grep '^state' "$W/gpu.out")"
        else
            fail "$at: does not build with a device, or fails"
            head -5 "$W/log"
        fi
    elif grep -q 'int main(' "$file"; then
        programs=$((programs + 1))
        if ! (cd "$W" && $build -O2 -Wall -Wextra -o program "$(basename "$file")" -lm -pthread) >"$W/log" 2>&1; then
            fail "$at: does not compile"
            head -5 "$W/log"
        elif ! (cd "$W" && timeout 120 ./program >out 2>&1 </dev/null); then
            fail "$at: compiles, but fails when run: $(tail -1 "$W/out")"
        else
            pass
            [ "$programs" = 1 ] && cp "$W/out" "$W/first"
        fi
    else
        if grep -q 'NEO_IMPLEMENTATION' "$file"; then # a neo.c: as it stands
            cp "$file" "$W/block.c"
        else
            { echo '#define NEO_IMPLEMENTATION'; echo '#include "neo_cuda.cuh"'; cat "$file"; } >"$W/block.c"
        fi
        { echo '#define NEO_IMPLEMENTATION'; echo '#include "neo_cuda.cuh"'; echo 'int body(void);'; echo 'int body(void) {'
            cat "$file"; echo 'return 0; }'; } >"$W/body.c"
        if (cd "$W" && $build -I. -c -o block.o block.c) >"$W/log" 2>&1 ||
            (cd "$W" && $build -I. -c -o block.o body.c) >"$W/log2" 2>&1; then
            pass
        else
            fail "$at: does not compile"
            head -5 "$W/log"
        fi
    fi
done
if [ $programs -gt 0 ]; then pass; else fail "README.md has no complete program"; fi
if grep -q '^state [0-9a-f]\{16\}$' "$W/first" 2>/dev/null; then pass; else fail "the first program prints no state"; fi
same "the same state again" "$(grep '^state' "$W/first")" "$(cd "$W" && { $CC -std=c11 -O1 -o again "$(ls ./*.c | grep -E '/[0-9]+\.c$' | xargs grep -l 'int main(' | head -1)" -lm -pthread 2>/dev/null; ./again 2>/dev/null | grep '^state'; })"

# Commands the README shows: make targets exist, options of dlrm and gpt exist.
for target in $(grep -oE '^[ ]*(\$ )?make [a-z-]+' README.md | sed 's/.*make //' | sort -u); do
    if grep -qE "^($target|.*[ ]$target)[ a-z-]*:" Makefile; then pass; else fail "README.md: make $target: no such target"; fi
done
if [ -x "$B/dlrm" ]; then
    "$B/dlrm" --help >"$W/help"
    for option in $(grep -E 'build/dlrm|^ +--' README.md | grep -oE ' --[a-z][a-z-]+' | sort -u); do
        if grep -qE -- "^ *$option( |$)" "$W/help"; then pass; else fail "README.md: dlrm has no option $option"; fi
    done
fi
if [ -x "$B/gpt" ]; then
    "$B/gpt" --help >"$W/help"
    for option in $(grep -E 'build/gpt' README.md | grep -oE ' --[a-z][a-z0-9-]+' | grep -v oversubscribe | sort -u); do
        if grep -qE -- "^ *$option( |$)" "$W/help"; then pass; else fail "README.md: gpt has no option $option"; fi
    done
fi

finish programs/readme
