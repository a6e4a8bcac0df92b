#!/bin/sh
# contents.sh: of each header the contents list at the top and the section marks agree; every `see
# >>mark` in a comment leads somewhere, in any; the shape of the text keeps to the house rules.

. tests/harness.sh
W=${B:-build}/tmp/contents
mkdir -p "$W"

: >"$W/all_marks"
for h in neo.h neo_comm.h neo_fsdp.h neo_cuda.cuh; do
    # The list: from CONTENTS to the end of the first comment. Marks: `>>name` alone on its line, or after /* ----.
    awk '/CONTENTS/ { on = 1; next } on && /\*\// { exit } on' $h | grep -oE '>>[a-z0-9-]+' >"$W/listed"
    sed '1,/\*\//d' $h | grep -E '^ *>>[a-z0-9-]+ *$|^/\* -+ >>[a-z0-9-]+' | grep -oE '>>[a-z0-9-]+' >"$W/marks"
    if [ -s "$W/listed" ] && cmp -s "$W/listed" "$W/marks"; then
        pass
    else
        fail "the contents and the marks of $h differ:"
        diff "$W/listed" "$W/marks" | head
    fi
    cat "$W/marks" >>"$W/all_marks"

    # Lines are short; nothing in it prints, aborts or exits.
    long=$(awk 'length($0) > 120 { n++ } END { print n + 0 }' $h)
    if [ "$long" = 0 ]; then pass; else fail "$long lines of $h are over 120 columns"; fi
    calls=$(sed 's|/\*.*\*/||; s|"[^"]*"||g' $h |
        grep -nE '(^|[^a-zA-Z0-9_.>])(abort|exit|_exit|printf|puts|perror|assert)\(' |
        grep -vE '^[0-9]+: *(//|\*|[A-Za-z ,]*[A-Z][a-z])' | head -3)
    if [ -z "$calls" ]; then pass; else fail "$h prints or exits: $calls"; fi
    if grep -q '	' $h; then fail "$h has tabs"; else pass; fi
    if grep -q ' $' $h; then fail "$h has blanks at line ends"; else pass; fi
    if sed '/Stop here if you only want the API/q' $h | grep -q 'Stop here'; then pass; else fail "no stop line in $h"; fi
done
twice=$(sort "$W/all_marks" | uniq -d)
if [ -z "$twice" ]; then pass; else fail "marked twice: $twice"; fi
for mark in $(grep -ohE 'see >>[a-z0-9-]+' neo.h neo_comm.h neo_fsdp.h neo_cuda.cuh README.md | grep -oE '>>[a-z0-9-]+' | sort -u); do
    if grep -qx -- "$mark" "$W/all_marks"; then pass; else fail "'see $mark' leads nowhere"; fi
done

finish build/contents
