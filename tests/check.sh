#!/bin/sh
# check.sh TARGET...: makes the targets, one after another, and adds up the totals that each ends
# with. With NEO_SECONDS set no target starts later than that, and one that runs then is stopped:
# both count as skipped. The last line is the totals alone; the exit status is 0 if nothing failed.

MAKE=${MAKE:-make}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
began=$(date +%s)
budget=$NEO_SECONDS
elapsed() { echo $(($(date +%s) - began)); }
passed=0 failed=0 skipped=0
for target in "$@"; do
    from=$(elapsed)
    limit=
    if [ -n "$budget" ]; then
        left=$((budget - from))
        if [ $left -le 0 ]; then
            echo "skipped make $target: the budget of $budget s is used up"
            skipped=$((skipped + 1))
            continue
        fi
        limit="env NEO_SECONDS=$((left - 20)) timeout -k 10 $left" # a list in a list ends first
    fi
    echo "== make $target"
    { $limit "$MAKE" "$target" 2>&1; echo "$?" >"$log.status"; } | tee "$log"
    read -r status <"$log.status"
    rm -f "$log.status"
    totals='\([a-z/_]*: \)\{0,1\}\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped'
    read -r p f s <<END
$(sed -n "s|^$totals\$|\2 \3 \4|p" "$log" | tail -1)
END
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        echo "skipped the rest of make $target: the budget of $budget s is used up"
        p=0 s=1 f=$(grep -c '^FAILED ' "$log")
    elif [ "$status" != 0 ] && [ "${f:-0}" = 0 ]; then
        f=1
    fi
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
    echo "== make $target: $(($(elapsed) - from)) s"
done
echo "all parts: $(elapsed) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
