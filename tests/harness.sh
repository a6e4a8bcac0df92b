# harness.sh: for test scripts, to be read with `.`: pass, fail, skip, and finish at the end.
passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAILED $*"
}
skip() {
    skipped=$((skipped + 1))
    echo "skipped $*"
}
# needs_python PART CODE TEXT: ends this script, which is PART, where $PYTHON does not run CODE.
needs_python() {
    $PYTHON -c "$2" 2>/dev/null && return
    skip "$3"
    finish "$1"
    exit
}
have() { command -v "$1" >/dev/null 2>&1; }
# mpi_folder: for mpirun, also as root. OpenMPI's sockets need short names, and its jobs of one user
# share a folder in TMPDIR, which each removes at its end: a script has its own below /tmp.
mpi_folder() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    TMPDIR=$(mktemp -d /tmp/neo.XXXXXX) && export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
    trap 'exit 1' HUP INT TERM
}
# same NAME A B: equal and not empty. Where A is empty, the program that should have printed it said
# why in $W/err.
same() {
    if [ -n "$2" ] && [ "$2" = "$3" ]; then
        pass
    elif [ -z "$2" ] && [ -s "$W/err" ]; then
        fail "$1: nothing instead of '$3': $(tail -4 "$W/err" | tr '\n' ' ')"
    else
        fail "$1: '$2' and '$3' differ"
    fi
}
# options_tested PROGRAM HELP: each option that HELP, what its --help prints, begins a line with is
# in a test script that runs the program.
options_tested() {
    cat $(grep -l "$1" tests/*/*.sh) >"$W/scripts"
    sed -n 's/^  --\([a-z0-9-]*\) .*/\1/p' "$2" >"$W/options"
    [ "$(wc -l <"$W/options")" -gt 15 ] && pass || fail "$1 --help has few options"
    while read -r option; do
        if grep -q -- "--$option\([^a-z0-9-]\|\$\)" "$W/scripts"; then pass; else
            fail "$1 --$option: no test"; fi
    done <"$W/options"
}
# part: whether this turn of a loop over runs of a program is taken: each; under a sanitizer, which
# makes them 10 times as long, one in three, where races are looked for one in six.
turn=0
part() {
    turn=$((turn + 1))
    case $SANITIZER in
    '') ;;
    thread) [ $((turn % 6)) = 1 ] ;;
    *) [ $((turn % 3)) = 1 ] ;;
    esac
}
# try LABEL COMMAND...: it succeeds.
try() {
    label=$1
    shift
    if "$@" >"$W/log" 2>&1; then
        pass
    else
        fail "$label"
        grep -E 'error|warning|undefined' "$W/log" | head -5
    fi
}
# cross SYSTEM COMPILER...: all headers in one file, $W/SYSTEM/neo.o, without a warning, and the
# examples and programs linked with it, $W/SYSTEM/NAME. A program may hold an implementation of its
# own, so neo.o is in an archive.
cross() {
    system=$1
    shift
    mkdir -p "$W/$system"
    rm -f "$W/$system/neo.a"
    try "$system: the headers" "$@" -std=c11 $warnings -O0 -I. -c -o "$W/$system/neo.o" \
        examples/neo.c
    ${AR:-ar} rcs "$W/$system/neo.a" "$W/$system/neo.o"
    for source in examples/*.c examples/plan/*.c examples/train/*/main.c; do
        case $source in
        examples/neo.c | examples/gpu.c | examples/serve.c | examples/stages.c) continue ;;
        esac
        name=$(basename "${source%/main.c}" .c)
        try "$system: $source" "$@" -std=c11 -Wall -Wextra -O0 -I. -o "$W/$system/$name" "$source" \
            "$W/$system/neo.a" -lm -pthread
    done
}
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror"
# state_in FILE: what its line `state` says, by the shell alone: a process takes longer.
state_in() {
    while read -r word rest; do
        [ "$word" != state ] || echo "$rest"
    done <"$1"
}
# state_of COMMAND...: the digest of a training run, empty if it failed; its messages and how it
# ended go to $W/err.
state_of() {
    "$@" >"$W/out_of" 2>"$W/err"
    ended=$?
    [ $ended = 0 ] || echo "(exit status $ended)" >>"$W/err"
    state_in "$W/out_of"
}
# given SAMPLES ROWS: what dlrm, with --rows ROWS, takes in place of --synthetic SAMPLES: the same
# samples in files, as to read them takes a fraction of the time. Where races are looked for they
# are made: those of files are read by threads. Without the program that makes them runs fail.
given() {
    to=$W/given_$1_$2_
    if [ "$SANITIZER" = thread ]; then
        echo "--synthetic $1"
    elif "$B/tests/data/make_synthetic" "$to" "$1" "$2"; then
        echo "--data $to --test ${to}test_ --format npy"
    else
        echo "--not-made-by=$B/tests/data/make_synthetic"
    fi
}
finish() {
    echo "$1: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}
