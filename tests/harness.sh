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
# state_of COMMAND...: the digest of a training run, empty if it failed; its messages and how it
# ended go to $W/err.
state_of() {
    "$@" >"$W/out_of" 2>"$W/err"
    ended=$?
    [ $ended = 0 ] || echo "(exit status $ended)" >>"$W/err"
    sed -n 's/^state //p' "$W/out_of"
}
finish() {
    echo "$1: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}
