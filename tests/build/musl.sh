#!/bin/sh
# musl.sh: neo over musl in place of glibc, built by musl-gcc: a trainer gives its digest, and tests
# of threads, files and readers pass.

B=${B:-build}
MAKE=${MAKE:-make}
. tests/harness.sh
W=$B/musl
mkdir -p "$W"

if ! have musl-gcc; then
    skip "musl: no musl-gcc (Debian: musl-tools)"
    finish build/musl
    exit
fi
programs="tests/comm/collectives tests/data/reader tests/files/checkpoint tests/core/stop"
"$MAKE" --no-print-directory -k ${JOBS:+-j$JOBS} B="$W" CC=musl-gcc \
    CFLAGS="-O1 -static -Werror" CHECKED=1 "$W/one_file_dlrm" $(printf "$W/%s " $programs) \
    >"$W/log" 2>&1 ||
    fail "does not build: $(grep -E 'error|undefined' "$W/log" | head -3)"
same "one_file_dlrm" "$(state_of "$W/one_file_dlrm")" \
    "$(sed -n 's/.*`state \([0-9a-f]*\)`.*/\1/p' examples/one_file_dlrm.c)"
for program in $programs; do
    line=$(timeout 900 env -u NEO_FULL "$W/$program" 2>&1 |
        grep -E '^[a-z/]+: [0-9]+ passed' | tail -1)
    case $line in *" 0 failed"*) pass ;; *) fail "$program: $line" ;; esac
done
finish build/musl
