#!/bin/sh
# contents.sh: each header's list of contents agrees with its section marks, every `see >>mark`
# leads somewhere, and the text keeps to the house rules and to the budget below.

. tests/harness.sh
W=${B:-build}/tmp/contents
mkdir -p "$W"

# The most that a header may have: lowered when the header falls below it, raised only by a commit
# that names what its lines buy: lines of the header, over 100 columns, comments that begin with no
# noun, and functions by letters(). Lines of each section are in sections.txt.
budget() {
    case $1 in
    neo.h) echo 18751 0 1 15 ;;
    neo_kernels.h) echo 6064 0 0 2 ;;
    neo_run.h) echo 3261 0 0 0 ;;
    neo_store.h) echo 2997 0 0 0 ;;
    neo_state.h) echo 5314 0 0 0 ;;
    neo_data.h) echo 7980 0 0 0 ;;
    neo_serve.h) echo 3061 0 0 0 ;;
    neo_comm.h) echo 4471 0 0 40 ;;
    neo_nccl.h) echo 666 0 0 0 ;;
    neo_plan.h) echo 8774 0 0 1 ;;
    neo_fsdp.h) echo 7443 0 0 0 ;;
    neo_cuda.cuh) echo 9420 0 0 32 ;;
    esac
}
# sections HEADER: its name, each section's mark and lines.
sections() {
    awk -v h="$1" '/^ *>>[a-z0-9-]+ *$|^\/\* -+ >>[a-z0-9-]+/ { if (mark) print h, mark, NR - from
            match($0, />>[a-z0-9-]+/); mark = substr($0, RSTART, RLENGTH); from = NR }
        END { print h, mark, NR - from }' "$1"
}
# letters HEADER: functions of over ten lines with an object of neo's in a parameter of one letter.
letters() {
    awk '/^[A-Za-z_].*\(/ && !/;$/ { head = ""; reading = 1 }
        reading { head = head $0; if (/[{;]$/) { reading = 0; from = NR } }
        /^}/ { if (NR - from > 10 && head ~ /neo_[a-z0-9_]+ [*&][a-z][,)]/) n++; head = "" }
        END { print n + 0 }' "$1"
}
# at_most NUMBER LIMIT TEXT
at_most() {
    if [ "$1" -le "$2" ]; then pass; else fail "$1 $3: at most $2"; fi
}

: >"$W/all_marks"
cat tests/*.[ch] tests/*/*.[ch] tests/*/*.cpp tests/*/*.sh | grep -oE '\bneo_[a-z0-9_]+' |
    sort -u >"$W/tested"
headers="neo.h neo_kernels.h neo_run.h neo_state.h neo_data.h neo_store.h neo_serve.h neo_comm.h
    neo_nccl.h neo_plan.h neo_fsdp.h neo_cuda.cuh"
for h in $headers; do
    # The list: from CONTENTS to the end of the first comment. Marks: `>>name` alone on its line, or
    # after /* ----.
    awk '/CONTENTS/ { on = 1; next } on && /\*\// { exit } on' $h |
        grep -oE '>>[a-z0-9-]+' >"$W/listed"
    sed '1,/\*\//d' $h | grep -E '^ *>>[a-z0-9-]+ *$|^/\* -+ >>[a-z0-9-]+' |
        grep -oE '>>[a-z0-9-]+' >"$W/marks"
    if [ -s "$W/listed" ] && cmp -s "$W/listed" "$W/marks"; then
        pass
    else
        fail "the contents and the marks of $h differ:"
        diff "$W/listed" "$W/marks" | head
    fi
    cat "$W/marks" >>"$W/all_marks"

    read -r lines wide openings letters <<END
$(budget $h)
END
    sed '1,/\*\//d' $h >"$W/$h"
    (cd "$W" && sections $h) >"$W/sections"
    over=$(awk 'FILENAME ~ /txt$/ { most[$1 $2] = $3; next }
        !(($1 $2) in most) || $3 > most[$1 $2] {
        print $2 " " $3 " of " most[$1 $2] + 0 }' tests/build/sections.txt "$W/sections")
    if [ -z "$over" ]; then
        pass
    else
        fail "sections of $h over their lines in tests/build/sections.txt: $over"
    fi
    at_most "$(wc -l <$h)" $lines "lines in $h"
    at_most "$(wc -c <$h)" 1000000 "bytes in $h, more than many code browsers show"
    at_most "$(awk 'length($0) > 100' $h | wc -l)" $wide "lines of $h over 100 columns"
    at_most "$(awk 'length($0) > 120' $h | wc -l)" 0 "lines of $h over 120 columns"
    at_most "$(grep -cE '/\* (What|Where|Of|That)( |$)' $h)" $openings \
        "comments of $h that begin with What, Where, Of or That"
    at_most "$(letters $h)" $letters "long functions of $h with parameters of one letter"

    # What it declares stands in a paragraph with a comment, and some test names it.
    sed '/Stop here if you only want the API/q' $h >"$W/api"
    bare=$(awk '/^$/ && !inside { told = 0 } /\/\*/ { told = inside = 1 } /\*\// { inside = 0 }
        /^NEO_API/ && !told' "$W/api")
    if [ -z "$bare" ]; then pass; else fail "$h: no comment is above: $bare"; fi
    awk '/^NEO_API/ { text = "" } /^NEO_API/, /;/ { text = text " " $0; if (!/;/) next
            match(text, /neo_[a-z0-9_]*\(/); print substr(text, RSTART, RLENGTH - 1) }' "$W/api" |
        grep -v '^neo__' | sort -u >"$W/declared"
    untested=$(comm -23 "$W/declared" "$W/tested" | tr '\n' ' ')
    if [ -z "$untested" ]; then pass; else fail "$h: no test calls $untested"; fi

    # Nothing in it prints, aborts or exits.
    calls=$(sed 's|/\*.*\*/||; s|"[^"]*"||g' $h |
        grep -nE '(^|[^a-zA-Z0-9_.>])(abort|exit|_exit|printf|puts|perror|assert)\(' |
        grep -vE '^[0-9]+: *(//|\*|[A-Za-z ,]*[A-Z][a-z])' | head -3)
    if [ -z "$calls" ]; then pass; else fail "$h prints or exits: $calls"; fi
    # NEO__HOT blocks do not nest: what follows a nested one would be compiled cold.
    nested=$(awk '/^NEO__HOT_BEGIN/ && ++hot != 1 || /^NEO__HOT_END/ && --hot != 0 {
            print NR; exit }' $h)
    if [ -z "$nested" ]; then
        pass
    else
        fail "$h:$nested: NEO__HOT_BEGIN and NEO__HOT_END do not alternate"
    fi
    if grep -q '	' $h; then fail "$h has tabs"; else pass; fi
    if grep -q ' $' $h; then fail "$h has blanks at line ends"; else pass; fi
    if sed '/Stop here if you only want the API/q' $h | grep -q 'Stop here'; then
        pass
    else
        fail "no stop line in $h"
    fi
done
# An example is read in one sitting.
for example in examples/*.c; do
    at_most "$(wc -l <"$example")" 199 "lines in $example"
done
# C of tests, benches and examples, and all scripts, have no longer lines either.
wide() { cat "$@" | awk 'length($0) > 100'; }
at_most "$(wide tests/*.[ch] tests/*/*.[ch] tests/*/*.cpp tests/*/*/*.[ch] tests/*/*/*.cpp \
    bench/*.[ch] bench/*/*.[ch] examples/*.c examples/*/*.[ch] examples/*/*/*.h | wc -l)" 0 \
    "lines of C in tests/, bench/ and examples/ over 100 columns"
at_most "$(wide tests/*.sh tests/*/*.sh tests/*/*.py bench/*.sh bench/*/*.py examples/*.py \
    examples/*/*.py .ci/run Makefile bench/peers/Makefile tests/*.mk tests/*/*.mk | wc -l)" 0 \
    "lines of scripts over 100 columns"
# Tables and what a program writes (cpu*.md) are as wide as their rows.
prose=$(ls README.md bench/*.md bench/results/*.md examples/data/*/*.md | grep -v results/cpu)
at_most "$(wide $prose | grep -cv '^|')" 0 "lines of prose over 100 columns"

twice=$(sort "$W/all_marks" | uniq -d)
if [ -z "$twice" ]; then pass; else fail "marked twice: $twice"; fi
for mark in \
    $(grep -ohE 'see >>[a-z0-9-]+' $headers README.md | grep -oE '>>[a-z0-9-]+' | sort -u); do
    if grep -qx -- "$mark" "$W/all_marks"; then pass; else fail "'see $mark' leads nowhere"; fi
done

# As C++20, which has no arithmetic between two enums; headers.sh reads them in every other way.
if echo 'int x;' | g++ -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; then
    mkdir -p "$W/all" # beside $W's copies those would be read in place of the headers
    printf '#define NEO_IMPLEMENTATION\n#include "neo_store.h"\n' >"$W/all/all.c"
    printf '#include "neo_%s.h"\n' serve fsdp >>"$W/all/all.c"
    try "the headers as C++20" g++ -std=c++20 $warnings -I. -fsyntax-only -x c++ "$W/all/all.c"
else
    skip "the headers as C++20: no g++ that knows it"
fi

finish build/contents
