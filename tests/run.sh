#!/bin/sh
# run.sh PROGRAM...: run test programs and scripts one by one and add up their results. Those that BESIDE names run
# meanwhile, one by one too: they measure no time, and the others leave a core idle.
#
# Each ends with "<name>: A passed, B failed, C skipped"; one that does not (a crash, a timeout) counts
# as one failure. RUNNER is put before programs (an emulator), TEST_TIMEOUT is in seconds.
# The last line is the totals alone; the exit status is 0 if nothing failed.

B=${B:-build}
TEST_TIMEOUT=${TEST_TIMEOUT:-300}
logs=$B/logs
mkdir -p "$logs" "$B/tmp"
TMPDIR=$(cd "$B/tmp" && pwd)
export B TMPDIR
if [ "$SANITIZER" = address ]; then
    ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}
    export ASAN_OPTIONS
fi

limit=
if command -v timeout >/dev/null 2>&1; then limit=yes; fi

# Some kernels lay memory out in a way that an older ThreadSanitizer refuses; then without randomisation.
wrap=$RUNNER
if [ "$SANITIZER" = thread ] && setarch -R true 2>/dev/null; then wrap="setarch -R $RUNNER"; fi

passed=0 failed=0 skipped=0
: >"$logs/skipped"
: >"$logs/failed"

# name_of PROGRAM: its folder and name, as core/gemm.
name_of() {
    of=${1%.sh}
    echo "${of##*tests/}"
}
# run PROGRAM: its output to a log; its exit status and seconds to a file beside it.
run() {
    name=$(name_of "$1")
    mkdir -p "$logs/${name%/*}"
    seconds=$TEST_TIMEOUT
    case $1 in
    *.sh) command="sh $1" seconds=$((TEST_TIMEOUT * 4 + ${FUZZ_SECONDS:-0} * 10)) ;;
    *) command="$wrap $1" ;;
    esac
    began=$(date +%s)
    if [ -n "$limit" ]; then timeout -k 10 "$seconds" $command >"$logs/$name.log" 2>&1; else $command >"$logs/$name.log" 2>&1; fi
    echo "$? $(($(date +%s) - began)) $seconds" >"$logs/$name.end"
}
# report PROGRAM: what it printed, a line, and its results to the totals.
report() {
    name=$(name_of "$1")
    log=$logs/$name.log
    read -r status took seconds <"$logs/$name.end"
    line=$(grep -E '^[a-z0-9_/]+: [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -1)
    grep -v '^skipped ' "$log" | grep -vxF -- "$line"
    if [ -n "$line" ]; then
        read -r p f s <<END
$(echo "$line" | sed 's|^[a-z0-9_/]*: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped|\1 \2 \3|')
END
        if [ "$status" -ne 0 ] && [ "$f" = 0 ]; then f=1; fi
    else
        p=0 f=1 s=0
    fi
    if [ "$f" != 0 ]; then
        result=FAILED
        echo "$name: exit status $status" >>"$logs/failed"
        grep -E '^FAILED ' "$log" | sed "s/^/    /" >>"$logs/failed"
        if [ "$status" = 124 ] || [ "$status" = 137 ]; then
            echo "    stopped after $seconds seconds" >>"$logs/failed"
        fi
    else
        result=ok
    fi
    sed -n "s|^skipped |$name: |p" "$log" >>"$logs/skipped"
    printf '%-6s %-26s %4d passed %3d failed %3d skipped  %4d s\n' $result "$name" $p $f $s $took
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}
is_beside() {
    case " $BESIDE " in *" $(name_of "$1") "*) return 0 ;; *) return 1 ;; esac
}

for program in "$@"; do if is_beside "$program"; then run "$program"; fi; done &
beside=$!
trap 'kill $beside 2>/dev/null' EXIT
trap 'exit 1' INT TERM
for program in "$@"; do
    is_beside "$program" && continue
    run "$program"
    report "$program"
done
wait $beside
for program in "$@"; do if is_beside "$program"; then report "$program"; fi; done

if [ -s "$logs/skipped" ]; then
    echo
    echo "skipped:"
    sed 's/^/    /' "$logs/skipped"
fi
if [ -s "$logs/failed" ]; then
    echo
    echo "failed (logs are in $logs):"
    sed 's/^/    /' "$logs/failed"
fi
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
