#!/bin/sh
# bench.sh OUT PROGRAM...: run the benches; their lines `bench <name> key=value ...` also go to OUT
# as JSON lines.
out=$1
shift
status=0
: >"$out"
for program in "$@"; do
    "$program" $BENCH_ARGS >"$out.tmp" 2>&1 || { status=1; echo "$program failed"; }
    cat "$out.tmp"
    awk '$1 == "bench" {
        line = "{\"name\":\"" $2 "\""
        for (i = 3; i <= NF; i++) {
            k = $i; sub(/=.*/, "", k)
            v = $i; sub(/^[^=]*=/, "", v)
            if (v !~ /^-?[0-9.]+([eE][-+]?[0-9]+)?$/) v = "\"" v "\""
            line = line ",\"" k "\":" v
        }
        print line "}"
    }' "$out.tmp" >>"$out"
    rm -f "$out.tmp"
done
exit $status
