#!/bin/sh
# demo.sh: `make demo` as a newcomer runs it: trains on the census data, meets the promised figures
# (with NEO_FULL as the median of three seeds), leaves a report and a checkpoint.

B=${B:-build}
MAKE=${MAKE:-make}
. tests/harness.sh
W=$B/tmp/demo
D=$W/build # the promise is: builds and trains; other tests use $B/dlrm meanwhile
rm -rf "$W"
mkdir -p "$W"

# neo as it is compiled already, and the programs, which NEO_FULL builds: copies newer than their
# sources.
mkdir -p "$D"
for file in neo.o neo_comm.o neo_fsdp.o neo.a neo_serve.o dlrm serve; do
    case $NEO_FULL:$file in ?*:dlrm | ?*:serve) continue ;; esac
    [ ! -f "$B/$file" ] || cp "$B/$file" "$D/"
done
if "$MAKE" --no-print-directory B="$D" demo >"$W/1" 2>"$W/err"; then
    pass
else
    fail "make demo: $(tail -2 "$W/err")"
fi
for file in report.html log.jsonl checkpoint; do
    if [ -s "$D/demo/$file" ]; then pass; else fail "make demo leaves no $file"; fi
done
if grep -q '<svg' "$D/demo/report.html" 2>/dev/null; then
    pass
else
    fail "the report has no curve"
fi
command=$(sed -n '/^[^ ]*dlrm /p' "$W/1" | head -1 | sed \
    's/ --\(checkpoint\|report\|log\) [^ ]*//g')
seeds=1 middle=1
if [ -n "$NEO_FULL" ]; then
    seeds='1 2 3' middle=2
    for seed in 2 3; do $command --seed $seed >"$W/$seed" 2>"$W/err" || fail \
        "seed $seed: $(tail -1 "$W/err")"; done
fi
# Columns of the line `test auc=.. logloss=.. ne=.. samples/s=..`.
median() { for seed in $seeds; do sed -n "s/^test auc=.*/&/p" "$W/$seed"; done |
    grep -o " $1=[0-9.]*" | cut -d= -f2 | sort -n | sed -n ${middle}p; }
auc=$(median auc) logloss=$(median logloss)
echo "demo: median of seeds $seeds: auc $auc, log loss $logloss"
if awk "BEGIN { exit !(${auc:-0} >= 0.913) }"; then pass; else fail "median auc $auc < 0.913"; fi
if awk "BEGIN { exit !(${logloss:-9} <= 0.306) }"; then
    pass
else
    fail "median log loss $logloss > 0.306"
fi
if grep -qE '^test auc=0\.[0-9]{4} logloss=0\.[0-9]{4} ne=0\.[0-9]+ samples/s=[0-9]+$' "$W/1"; then
    pass
else
    fail "the line of figures: $(grep '^test' "$W/1")"
fi
if tail -1 "$W/1" | grep -qE '^state [0-9a-f]{16}$'; then
    pass
else
    fail "the last line is no state"
fi
# One epoch: the scalar path, whose fma is in software, takes a second or two for each.
same "demo on 1 thread, scalar" \
    "$(NEO_ISA=scalar $command --epochs 1 --threads 1 2>/dev/null | tail -1)" \
    "$($command --epochs 1 2>/dev/null | tail -1)"
finish programs/demo
