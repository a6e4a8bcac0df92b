#!/bin/sh
# run.sh PROGRAM...: run test programs and scripts, JOBS + 1 at a time (one at a time with JOBS=1),
# and add up their results.
#
# Each ends with "<name>: A passed, B failed, C skipped"; one that does not (a crash, a timeout)
# counts as one failure. RUNNER is put before programs (an emulator), TEST_TIMEOUT is in seconds,
# SCRIPT_TIMEOUT that of scripts.
# The last line is the totals alone; the exit status is 0 if nothing failed.

B=${B:-build}
TEST_TIMEOUT=${TEST_TIMEOUT:-1800}
SCRIPT_TIMEOUT=${SCRIPT_TIMEOUT:-$((TEST_TIMEOUT * 8))}
logs=$B/logs

# name_of PROGRAM: its path without build/, tests/ and .sh.
name_of() { echo "$1" | sed 's|.*tests/||; s|\.sh$||'; }

# one PROGRAM: its output to a log, its results to a file beside it, and a line to standard output.
one() {
    name=$(name_of "$1")
    log=$logs/$name.log
    mkdir -p "${log%/*}"
    seconds=$TEST_TIMEOUT
    case $1 in
    *.sh) command="sh $1" seconds=$((SCRIPT_TIMEOUT + ${FUZZ_SECONDS:-0} * 10)) ;;
    *) command="$wrap $1" ;;
    esac
    began=$(date +%s)
    if command -v timeout >/dev/null 2>&1; then limit="timeout -k 10 $seconds"; else limit=; fi
    $limit $command >"$log" 2>&1
    status=$?
    took=$(($(date +%s) - began))
    times >"$log.times" # in a subshell, times would be those of the subshell
    cpu=$(tail -1 "$log.times" | awk -F '[ms ]+' '{ printf "%.1f", 60 * ($1 + $3) + $2 + $4 }')

    line=$(grep -E '^[a-z0-9_/]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -1)
    p=0 f=1 s=0
    [ -z "$line" ] || read -r p f s <<END
$(echo "$line" | sed 's/^[^ ]* \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped/\1 \2 \3/')
END
    if [ $status != 0 ] && [ "$f" = 0 ]; then f=1; fi
    result=ok
    if [ "$f" != 0 ]; then
        result=FAILED
        {
            echo "$name: exit status $status"
            grep -E '^FAILED ' "$log" | sed 's/^/    /'
            if [ $status = 124 ] || [ $status = 137 ]; then
                echo "    stopped after $seconds seconds"
            fi
        } >"$log.failed"
    fi
    echo "$p $f $s" >"$log.counts"
    shown=$(grep -v '^skipped ' "$log" | grep -vxF -- "$line")
    printf '%s%-6s %-26s %4d passed %3d failed %3d skipped  %4d s, CPU %s s\n' "${shown:+$shown
}" $result "$name" "$p" "$f" "$s" $took "$cpu"
}

if [ "$1" = --one ]; then
    one "$2"
    exit 0
fi

rm -rf "$logs"
mkdir -p "$logs" "$B/tmp"
TMPDIR=$(cd "$B/tmp" && pwd)
if [ "$SANITIZER" = address ]; then
    ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
fi
# Some kernels lay memory out in a way that an older ThreadSanitizer refuses; then without
# randomisation.
wrap=$RUNNER
if [ "$SANITIZER" = thread ] && setarch -R true 2>/dev/null; then wrap="setarch -R $RUNNER"; fi
# Large blocks that glibc would give back to the system at each free come back page by page, each a
# fault: it keeps them.
keep=glibc.malloc.mmap_threshold=268435456:glibc.malloc.trim_threshold=1073741824
GLIBC_TUNABLES=${GLIBC_TUNABLES:-$keep:glibc.malloc.top_pad=4194304}
export B TEST_TIMEOUT SCRIPT_TIMEOUT TMPDIR wrap GLIBC_TUNABLES
[ -z "$ASAN_OPTIONS" ] || export ASAN_OPTIONS

# One more than JOBS: some only wait.
jobs=$((${JOBS:-2} + 1))
[ "$JOBS" != 1 ] || jobs=1
printf '%s\n' "$@" | xargs -P $jobs -n 1 sh "$0" --one

cd "$logs" || exit 1
list() { find . -name "$1" | sort; }
skips=$(list '*.log' | while read -r log; do sed -n "s|^skipped |${log%.log}: |p" "$log"; done)
fails=$(list '*.failed' | while read -r log; do cat "$log"; done)
[ -z "$skips" ] || printf '\nskipped:\n%s\n' "$(echo "$skips" | sed 's|^\./|    |')"
[ -z "$fails" ] || printf '\nfailed (logs are in %s):\n%s\n' "$logs" \
    "$(echo "$fails" | sed 's/^/    /')"
read -r passed failed skipped <<END
$(list '*.counts' | while read -r counts; do cat "$counts"; done |
    awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
END
for program; do
    name=$(name_of "$program")
    [ -f "./$name.log.counts" ] || { echo "$name left no result" && failed=$((failed + 1)); }
done
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
