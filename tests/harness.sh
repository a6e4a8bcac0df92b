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
have() { command -v "$1" >/dev/null 2>&1; }
# same NAME A B: equal and not empty.
same() {
    if [ -n "$2" ] && [ "$2" = "$3" ]; then pass; else fail "$1: '$2' and '$3' differ"; fi
}
finish() {
    echo "$1: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}
