#!/bin/sh
# link.sh: how programs are put together: two files, a static copy in each, shared objects with
# private copies, an exported neo, and files compiled against two versions (which must not link).

B=${B:-build}
CC=${CC:-cc}
. tests/harness.sh
W=$B/tmp/link
rm -rf "$W"
mkdir -p "$W/next"

cat >"$W/main.c" <<'END'
#include "neo.h"
#include <stdio.h>
int other(void);
#ifdef OTHER_TWO
int other_two(void);
#else
#define other_two() 0
#endif
int main(void) {
    neo_ctx *ctx = NULL;
    neo_ctx_desc desc = {0};
    desc.threads = 2;
    if (neo_ctx_create(&desc, &ctx) != NEO_OK) return 1;
    neo_status status = neo_isa_parse("nosuch", &desc.isa);
    printf("main %d\n", status == NEO_ERR_ARG && neo_last_error()[0]);
    int bad = other() + other_two();
    neo_ctx_destroy(ctx);
    return bad;
}
END
cat >"$W/other.c" <<'END'
#include "neo.h"
#ifndef OTHER
#define OTHER other
#endif
__attribute__((visibility("default"))) int OTHER(void);
int OTHER(void) {
    neo_ctx *ctx = NULL;
    if (neo_ctx_create(NULL, &ctx) != NEO_OK) return 1;
    neo_ctx_destroy(ctx);
    return 0;
}
END
# Kernels for vectors take most of the time and link like the others: they are in what nm reads.
cc_() { $CC -std=c11 -O0 -I. -DNEO_NO_SIMD "$@" >>"$W/log" 2>&1; }
# check LABEL PROGRAM: it runs, and its own copy of neo works.
check() {
    if [ "$(LD_LIBRARY_PATH=$W "$2" 2>&1)" = "main 1" ]; then
        pass
    else
        fail "$1: does not run"; tail -5 "$W/log"
    fi
}
impl=-DNEO_IMPLEMENTATION

cc_ -c $impl -o "$W/main_impl.o" "$W/main.c"
cc_ -c -o "$W/main.o" "$W/main.c"
cc_ -UNEO_NO_SIMD -c $impl -o "$W/other_impl.o" "$W/other.c"
cc_ -c -o "$W/other.o" "$W/other.c"
cc_ -o "$W/a" "$W/main_impl.o" "$W/other.o" -lm -pthread && check "implementation in main" "$W/a"
cc_ -o "$W/b" "$W/other_impl.o" "$W/main.o" -lm -pthread &&
    check "implementation in the other file" "$W/b"
if cc_ -o "$W/c" "$W/other_impl.o" "$W/main_impl.o" -lm -pthread; then
    fail "two implementations link"
else
    pass
fi
cc_ -DNEO_STATIC -o "$W/d" "$W/main.c" "$W/other.c" -lm -pthread
check "a static copy in each file" "$W/d"

# C and C++ files of one program.
if $CC -x c++ -std=c++17 -fno-exceptions -I. -O0 -c -o "$W/other_cpp.o" -DNEO_IMPLEMENTATION \
    -DNEO_NO_SIMD -DOTHER=other \
    -x c++ - >>"$W/log" 2>&1 <<END
extern "C" int other(void);
#include "$W/other.c"
END
then
    cc_ -o "$W/e" "$W/main.o" "$W/other_cpp.o" -lm -pthread
    check "implemented in C++, used from C" "$W/e"
else
    skip "C++: no compiler for it"
fi

# Two shared objects and the program, each with a copy of its own that the others do not see.
cc_ -fPIC -shared $impl -DOTHER=other -o "$W/libone.so" "$W/other.c" -lm -pthread
cc_ -fPIC -shared $impl -DOTHER=other_two -o "$W/libtwo.so" "$W/other.c" -lm -pthread
cc_ $impl -DOTHER_TWO -o "$W/f" "$W/main.c" -L"$W" -lone -ltwo -lm -pthread
check "two shared objects with private copies" "$W/f"
if have nm; then
    exported=$(nm -D --defined-only "$W/libone.so" | grep -c ' neo_')
    if [ "$exported" = 0 ]; then pass; else fail "a private copy exports $exported symbols"; fi
    globals=$(nm "$W/other_impl.o" | grep -E ' [BDCT] ' | grep -cvE ' (neo_[a-z0-9_]*|other)$')
    if [ "$globals" = 0 ]; then pass; else fail "$globals private names are global"; fi
    # The last-error slot and the signal that came are the only writable globals (without PIC:
    # tables
    # of pointers are then read-only).
    cc_ -UNEO_NO_SIMD -fno-pie -c $impl -o "$W/fixed.o" "$W/other.c"
    writable=$(nm "$W/fixed.o" | grep -E ' [bBdDC] ' | grep -vE ' neo__(error_text|stop)$' | sed \
        's/.* //' | tr '\n' ' ')
    if [ -z "$writable" ]; then pass; else fail "writable globals: $writable"; fi
else
    skip "exported symbols: no nm"
fi

# Exported from one shared object.
printf '#define NEO_IMPLEMENTATION\n#include "neo_data.h"\n' >"$W/neo.c"
cc_ -fPIC -shared -DNEO_SHARED -o "$W/libneo.so" "$W/neo.c" -lm -pthread
cc_ -DNEO_SHARED -o "$W/g" "$W/main.c" "$W/other.c" -L"$W" -lneo -lm -pthread
check "an exported neo" "$W/g"
# What ld says of each file that was compiled without the macro: the words at NEO_SHARED in neo.h.
if $CC -std=c11 -O0 -I. -o "$W/h" "$W/main.c" "$W/other.c" -L"$W" -lneo -lm -pthread \
    >"$W/log" 2>&1; then fail "a caller without NEO_SHARED links"; elif grep -qE \
        'hidden symbol|undefined' "$W/log"; then pass; else fail "$(head -3 "$W/log")"; fi
# Every function the header declares is there (neo__...: what neo's other headers call).
if have nm; then
    $CC -std=c11 -E -P -DNEO_SHARED neo_data.h 2>/dev/null | tr -d '\n' | tr ';' '\n' |
        grep -oE 'visibility\("default"\)\)\).* \**neo_[a-z0-9_]+\(' |
        grep -oE '\<neo_[a-z0-9][a-z0-9_]*\($' | tr -d '(' |
        sort -u >"$W/declared"
    nm -D --defined-only "$W/libneo.so" | sed -n 's/.* T \(neo_[^_].*\)/\1/p' |
        sort -u >"$W/exported"
    missing=$(comm -23 "$W/declared" "$W/exported" | tr '\n' ' ')
    extra=$(comm -13 "$W/declared" "$W/exported" | tr '\n' ' ')
    echo "link: $(wc -l <"$W/declared") functions declared, $(wc -l <"$W/exported") exported"
    if [ -z "$missing$extra" ]; then
        pass
    else
        fail "declared only: $missing; exported only: $extra"
    fi
fi

# A file compiled against the next version does not link with this one.
sed 's/^#define NEO_VERSION_MINOR .*/#define NEO_VERSION_MINOR 999/' neo.h >"$W/next/neo.h"
$CC -std=c11 -O0 -I"$W/next" -c -o "$W/next.o" "$W/other.c" >>"$W/log" 2>&1
if $CC -o "$W/h" "$W/main_impl.o" "$W/next.o" -lm -pthread >"$W/skew" 2>&1; then
    fail "two versions link"
elif grep -q 'neo_ctx_create' "$W/skew"; then
    pass
else
    fail "two versions: the linker does not name neo_ctx_create: $(tail -1 "$W/skew")"
fi

# What the implementations tell the compiler ends with them: pragmas are balanced, and contraction
# is as before.
cp examples/neo.c "$W/pragmas.c"
printf '#define NEO_COMM_IMPLEMENTATION\n#include "neo_comm.h"\n' >"$W/pragmas_comm.c"
printf '#define NEO_FSDP_IMPLEMENTATION\n#include "neo_fsdp.h"\n' >"$W/pragmas_fsdp.c"
for c in gcc clang; do
    have $c || { skip "pragmas of $c: not installed"; continue; }
    is_clang=$([ $c = clang ] && echo 1 || echo 0)
    for f in pragmas pragmas_comm pragmas_fsdp; do
        for flags in -O0 -O2 "-Os -DNEO_NO_SIMD"; do
            $c -std=c11 -I. $flags -E "$W/$f.c" >"$W/pragmas.i" 2>>"$W/log"
            left=$(awk '/^#pragma GCC push_options/ || /^#pragma clang attribute push/ { n++ }
                /^#pragma GCC pop_options/ || /^#pragma clang attribute pop/ { n-- }
                /^#pragma clang optimize/ { off = $4 == "off" }
                /^#pragma STDC FP_CONTRACT/ { on = $4 != "OFF"; seen = 1 }
                /^#pragma GCC (optimize|push_options)/ { seen = 1 }
                END { print n + 0, off + 0, seen && clang ? !on : !seen }' clang=$is_clang \
                "$W/pragmas.i")
            same "pragmas left by $c $flags $f" "$left" "0 0 0"
        done
    done
done

finish build/link
