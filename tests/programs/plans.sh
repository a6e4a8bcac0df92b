#!/bin/sh
# plans.sh: examples/plan/plan.c on its samples: plans are printed, drawn, written and read again;
# bad input is refused with file and line.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/plan
P=examples/plan
mkdir -p "$W"

# The shipped sets are what the generator writes.
for set in a1 a2 f1 i1; do
    if "$B/plan" --set $set >"$W/$set.model" && cmp -s "$W/$set.model" $P/models/$set.model; then
        pass
    else
        fail "$set.model differs from plan --set $set"
    fi
done

# sample MODEL CLUSTER [OPTIONS]: the plan, its file, the same plan from the file, the picture, the
# numbers.
sample() {
    name=$1-$2 options=$3
    if "$B/plan" $P/models/$1.model $P/clusters/$2.cluster $options --out "$W/$name.plan" \
        --svg "$W/$name.svg" >"$W/$name" 2>"$W/err"; then
        pass
    else
        fail "$name: $(tail -1 "$W/err")"
        return
    fi
    if grep -qE '^    one after another .* samples/s; pipelined ' "$W/$name"; then
        pass
    else
        fail "$name: no step is predicted"
    fi
    if [ "$(grep -c '^table ' "$W/$name.plan")" = "$(grep -c '^table ' $P/models/$1.model)" ]; then
        pass
    else
        fail "$name.plan has not all tables"
    fi
    "$B/plan" $P/models/$1.model $P/clusters/$2.cluster $options --plan "$W/$name.plan" \
        --out "$W/again.plan" >"$W/again" 2>"$W/err"
    if cmp -s "$W/$name.plan" "$W/again.plan" && cmp -s "$W/$name" "$W/again"; then
        pass
    else
        fail "$name: read and written again it differs $(cat "$W/err")"
    fi
    if grep -q '^</svg>$' "$W/$name.svg" && [ "$(grep -c '<rect' "$W/$name.svg")" -gt 8 ]; then
        pass
    else
        fail "$name.svg is no picture"
    fi
    if have python3; then
        "$B/plan" $P/models/$1.model $P/clusters/$2.cluster $options --plan "$W/$name.plan" \
            --json >"$W/$name.json"
        if python3 - "$W/$name.json" "$W/$name.svg" <<'END'
import json, sys, xml.dom.minidom
plan = json.load(open(sys.argv[1]))
xml.dom.minidom.parse(sys.argv[2])
for table in plan["tables"]:  # every element once, or a copy on every rank
    area = sum(rows * cols for _, _, rows, _, cols in table["pieces"])
    assert area == table["rows"] * table["dim"], table["name"]
assert len(plan["rank"]) == plan["ranks"] and 0 < plan["step"]["pipelined"] <= plan["step"]["plain"]
END
        then pass; else fail "$name: the JSON or the picture is wrong"; fi
    else
        skip "$name, JSON: no python3"
    fi
}
sample criteo_kaggle laptop
# A fourth of the ranks with four times the memory: shard/plan searches on all 128.
sample a1 zionex "--ranks 32 --memory 144GiB"
sample a2 zionex "--ranks 32 --memory 144GiB"
sample f1 zionex_ddr
# What does not fit says what would, and that does.
"$B/plan" $P/models/i1.model $P/clusters/zionex.cluster --memory 5GiB >"$W/small" 2>"$W/err"
enough=$(sed -n 's/^plan: --memory: .*; \([0-9]*\) bytes each would do$/\1/p' "$W/err")
[ -n "$enough" ] || fail "5 GiB: $(cat "$W/err" "$W/small")"
sample i1 zionex "--memory ${enough:-0}"

"$B/plan" $P/models/criteo_kaggle.model $P/clusters/laptop.cluster --verbose >"$W/verbose" 2>&1
if [ "$(grep -c '^    not ' "$W/verbose")" = 156 ]; then
    pass
else
    fail "--verbose does not say for 26 tables why not the six other ways"
fi
printf 'batch 100\ntable a 100x16 2\n' >"$W/one.model"
said=$("$B/plan" "$W/one.model" $P/clusters/laptop.cluster --ranks 1 2>&1 | head -1)
same "one of each" "${said##*: }" "1 table on 1 rank"
for all in tw cw rw dp twrw twcw grid; do
    if "$B/plan" $P/models/f1.model $P/clusters/zionex.cluster --ranks 16 \
        --memory 100TiB --all $all >"$W/all" 2>"$W/err" && grep -q "^$all  *[0-9]" "$W/all"; then
        pass
    else
        fail "--all $all: $(cat "$W/all" "$W/err")"
    fi
done

# refuse NAME MODEL-TEXT CLUSTER-TEXT MESSAGE
refuse() {
    printf "$2" >"$W/bad.model"
    printf "$3" >"$W/bad.cluster"
    if "$B/plan" "$W/bad.model" "$W/bad.cluster" >"$W/out" 2>"$W/err"; then
        fail "$1 is accepted"
    elif grep -qF -- "$4" "$W/err"; then
        pass
    else
        fail "$1: '$(cat "$W/err")' lacks '$4'"
    fi
}
good_model='batch 100\ntable a 100x16 2\n'
good_cluster='ranks 4 2\n'
refuse "a word" 'batch 100\ncable a 100x16 2\n' "$good_cluster" \
    "bad.model:2: nothing that a model has: 'cable'"
units='(K, M, G, T, KiB, MiB, GiB, TiB may follow, as in 32GiB)'
refuse "UTF-16" '\377\376b\000a\000' "$good_cluster" "bad.model:1: is UTF-16: iconv"
refuse "lines that end with a carriage return alone" 'batch 100\rtable a 100x16 2\r' \
    "$good_cluster" "bad.model:1: holds \\r inside: if that alone ends lines, use tr"
refuse "half a sample" 'batch 1.5\n' "$good_cluster" "bad.model:1: not a whole number: '1.5'"
refuse "half a rank" "$good_model" 'ranks 2.5 1\n' "bad.cluster:1: not a whole number: '2.5'"
refuse "a word behind a mark of UTF-8" '\357\273\277batch 100\ncable a\n' "$good_cluster" \
    "bad.model:2: nothing that a model has: 'cable'"
refuse "a number" 'batch ten\n' "$good_cluster" \
    "bad.model:1: not a number from 1 to 1e+12 $units: 'ten'"
refuse "a unit" "$good_model" 'ranks 4 2\nmemory 3GB\n' \
    "bad.cluster:2: not a number from 1 to 1e+18 $units: '3GB'"
refuse "a unit alone" 'batch 100\nskew K\n' "$good_cluster" \
    "bad.model:2: not a number from 0 to 100 $units: 'K'"
refuse "a size" 'batch 100\n\ntable a 100 2\n' "$good_cluster" \
    "bad.model:3: not rows x columns, as 1000x64: '100'"
refuse "too little" 'batch 100\ntable a 100x16\n' "$good_cluster" \
    "bad.model:2: more words are wanted after 'table'"
refuse "too much" 'batch 100 7\n' "$good_cluster" "bad.model:1: more than belongs on the line: '7'"
refuse "twice" 'batch 100\ntable a 1x1 1\ntable a 1x1 1\n' "$good_cluster" \
    "bad.model:3: a second table 'a'"
refuse "a second batch" 'batch 100\ntable a 1x1 1\nbatch 200\n' "$good_cluster" \
    "bad.model:3: a second line, after line 1: 'batch'"
tables=$(awk 'BEGIN { for (i = 0; i < 16385; i++) print "table t" i " 1x1 1" }')
refuse "too many tables" "$tables" "$good_cluster" \
    "bad.model:16385: more tables than plan takes, 16384: 't16384'"
refuse "an option" 'batch 100\ntable a 1x1 1 color=red\n' "$good_cluster" \
    "bad.model:2: not buckets=, pooling=, dtype= or placements=: 'color'"
refuse "a dtype" 'batch 100\ntable a 1x1 1 dtype=f8\n' "$good_cluster" \
    "bad.model:2: not f32, f16, bf16 or i8: 'f8'"
refuse "weighted" 'weighted yes\n' "$good_cluster" "bad.model:1: neither off nor on: 'yes'"
for name in a%%2 %%zz %%00 %%; do
    refuse "a name $name" "batch 100\\ntable $name 1x1 1\\n" "$good_cluster" \
        "bad.model:2: % begins no byte of two digits in"
done
refuse "a default as 0" "$good_model" 'ranks 4 2\nstep_near 0\n' \
    "bad.cluster:2: not a number from 1e-06 to 1e+06 $units: '0'"
refuse "a placement" 'batch 100\ntable a 1x1 1 placements=tw,up\n' "$good_cluster" \
    "bad.model:2: not a placement: 'up'"
refuse "an optimizer" 'optimizer adam2\n' "$good_cluster" \
    "bad.model:1: not an optimizer of tables: 'adam2'"
refuse "a wire" 'wire f32 f31\n' "$good_cluster" \
    "bad.model:1: not a wire (f32, f16, bf16, i8 ...): 'f31'"
refuse "no tables" 'batch 100\n' "$good_cluster" "bad.model: has no table"
refuse "no batch" 'table a 1x1 1\n' "$good_cluster" "bad.model: has no batch"
refuse "no ranks" "$good_model" 'memory 3GiB\n' "bad.cluster: has no ranks"
refuse "ranks" "$good_model" 'ranks 0 2\n' \
    "bad.cluster:1: not a number from 1 to 4096 $units: '0'"
refuse "a curve" "$good_model" 'ranks 4 2\nrows adam2 1 2 3 4 5 6\n' \
    "bad.cluster:2: no curve: 'adam2'"
refuse "half a curve" "$good_model" 'ranks 4 2\nrows adam 1 2 3\n' \
    "bad.cluster:2: more words are wanted after 'rows'"
refuse "a skew" 'batch 100\nskew -1\n' "$good_cluster" "bad.model:2: not a number from 0 to 100 "
refuse "none distinct" 'batch 100\ndistinct 0\n' "$good_cluster" "bad.model:2: not a number"
refuse "a unit's place" 'batch 100\nunit u before 2-3\n' "$good_cluster" \
    "bad.model:2: neither beside nor after: 'before'"
refuse "a unit's field" 'batch 100\nunit u after size=3\n' "$good_cluster" \
    "bad.model:2: not flops, params or dots: 'size'"
refuse "a unit's products" 'batch 100\nunit u after dots=3\n' "$good_cluster" \
    "bad.model:2: not rows x columns, whole numbers as in 27x16: '3'"
refuse "half a unit's row" 'batch 100\nunit u after dots=27.5x16\n' "$good_cluster" \
    "bad.model:2: not rows x columns, whole numbers as in 27x16: '27.5x16'"
refuse "a unit twice" 'unit u after 2-3\nunit u after 2-3\n' "$good_cluster" \
    "bad.model:2: a second unit 'u'"
refuse "a unit without size" 'unit u after\n' "$good_cluster" \
    "bad.model:1: more words are wanted after 'unit'"
refuse "units and flops" 'batch 9\ntop_flops 5\nunit u after 2-3\ntable a 9x9 1\n' "$good_cluster" \
    "bad.model: has units and also bottom_flops, top_flops or dense_params"

# What-if: a change on the command line is a change of the file.
printf 'batch 100\nunit bottom beside 4-8-16\nunit top after flops=3e4 params=700\n' >"$W/if.model"
printf 'table a.b 1000x32 2 buckets=4\ntable c 50x16 1\nwire f32 bf16\n' >>"$W/if.model"
printf 'ranks 4 2\nlocal 2e9 5\ncross 1e9 50\nrows sgd 1 2 3 4 5 6\npipeline off\n' \
    >"$W/if.cluster"
# if_set SET FILE SED [same]: same: the change does not show in the plan.
if_set() {
    cp "$W/if.model" "$W/changed.model" && cp "$W/if.cluster" "$W/changed.cluster"
    sed "$3" "$W/if.$2" >"$W/changed.$2"
    "$B/plan" "$W/changed.model" "$W/changed.cluster" --json >"$W/want" 2>&1
    "$B/plan" "$W/if.model" "$W/if.cluster" --json >"$W/before" 2>&1
    "$B/plan" "$W/if.model" "$W/if.cluster" --json --set "$1" >"$W/got" 2>&1
    if cmp -s "$W/want" "$W/got" && ! cmp -s "$W/if.$2" "$W/changed.$2"; then
        pass
    else
        fail "--set $1 is not that change of the $2: $(head -1 "$W/got")"
    fi
    if [ "$4" ] || ! cmp -s "$W/before" "$W/got"; then pass; else fail "--set $1 does nothing"; fi
}
if_set cross.bandwidth=5e9 cluster 's/^cross 1e9/cross 5e9/'
if_set cross.latency_us=7 cluster 's/^cross 1e9 50/cross 1e9 7/'
if_set local.bandwidth=5e9 cluster 's/^local 2e9/local 5e9/'
if_set local.latency_us=7 cluster 's/^local 2e9 5/local 2e9 7/'
if_set "local=7e9 1" cluster 's/^local.*/local 7e9 1/'
if_set ranks=2 cluster 's/^ranks 4/ranks 2/'
if_set ranks_per_node=4 cluster 's/^ranks 4 2/ranks 4 4/'
if_set flops=3e9 cluster 's/^pipeline.*/flops 3e9/'
if_set pipeline=on cluster 's/off/on/'
if_set "rows.sgd=9 9 9 9 9 9" cluster 's/^rows.*/rows sgd 9 9 9 9 9 9/' same
if_set batch=300 model 's/^batch.*/batch 300/'
if_set wire.forward=i8 model 's/^wire f32/wire i8/'
if_set wire.backward=f32 model 's/bf16/f32/'
if_set table.a.b.ids=9 model 's/x32 2/x32 9/'
if_set table.a.b.rows=2000 model 's/ 1000x/ 2000x/'
if_set threads=3 cluster '$a\threads 3'
if_set table.c.dtype=f16 model 's/50x16 1/50x16 1 dtype=f16/'
if_set weighted=on model '1s/^/weighted on\n/'
if_set table.c.dim=32 model 's/50x16/50x32/'
if_set table.a.b.placements=tw model 's/buckets=4/buckets=4 placements=tw/'
if_set table.a.b.optimizer=adam model \
    's/^table a/optimizer adam\n&/; s/^table c/optimizer rowwise_adagrad\n&/'
if_set unit.bottom.flops=9e6 model 's/4-8-16/flops=9e6 params=184/'
if_set unit.bottom.params=9 model 's/4-8-16/& params=9/'
if_set unit.top.flops=9e6 model 's/flops=3e4/flops=9e6/'
if_set unit.top.params=9000 model 's/params=700/params=9000/'
if_set optimizer=adam model '1s/^/optimizer adam\n/'
# refuse_option MESSAGE OPTION...: with good files.
refuse_option() {
    message=$1
    shift
    if "$B/plan" "$W/if.model" "$W/if.cluster" "$@" >"$W/out" 2>"$W/err"; then
        fail "$* is accepted"
    elif grep -qF -- "$message" "$W/err"; then
        pass
    else
        fail "$*: '$(cat "$W/err")' lacks '$message'"
    fi
}
refuse_option "--set colour=1: nothing that a model or a cluster has: 'colour'" --set colour=1
refuse_option "--set table.x.rows=1: no table has the name 'x'" --set table.x.rows=1
refuse_option ".pooling, .dtype or .placements: 'row'" --set table.a.b.row=1
refuse_option "--set unit.x.flops=1: no unit has the name 'x'" --set unit.x.flops=1
refuse_option "--set cross.bandwidth=fast: not a number" --set cross.bandwidth=fast
refuse_option "--set batch=1 2: more than belongs there: '2'" --set "batch=1 2"
refuse_option "--set batch=: not NAME=VALUE" --set batch=
refuse_option "--set batch: neither WHAT=VALUE, as batch=64K, nor a1, a2, f1 or i1" --set batch
refuse_option "has units and also bottom_flops" --set bottom_flops=1e9
refuse_option "--timeline t.png: ends in neither .svg nor .json" --timeline t.png
refuse_option "FIRST not above LAST, not '8'" --sweep --ranks 8
refuse_option "--swep: no such option; did you mean --sweep?" --swep
refuse_option "--sweep: wants --ranks FIRST..LAST" --sweep --ranks 8..5000
refuse_option "of 1 to 4096 and FIRST not above LAST, not '8..4'" --sweep --ranks 8..4
refuse_option "--ranks 4..8: a range belongs to a --sweep" --ranks 4..8
refuse_option "--weak: belongs to a --sweep" --weak
refuse_option "--timeline: of one plan, not of a --sweep" --sweep --ranks 1..8 --timeline t.svg
refuse_option "/nowhere/t.svg: cannot open for writing" --timeline /nowhere/t.svg
refuse_option "--plan tw: no file; one placement of all tables is --all tw" --plan tw

# Tiers: a file below memory. What a rank's memory holds does not grow with the rows; by a profile
# ids hit more often than where nothing is known; the file's time is in the step.
printf 'batch 100\noptimizer sgd\ntable a.b 40000x32 4 buckets=4\ntable c 50000x16 1 buckets=4\n' \
    >"$W/tier.model"
printf 'ranks 4 2\nmemory 8MiB\ntier dram 600KiB lfu\ntier disk 1GiB 1e9 5\n' >"$W/tier.cluster"
{
    echo "neo-profile 1"
    echo "table a.b 40000 40:40000 400:40000 4000:40000 20000:40000"
    echo "table c 50000 50000:50000"
} >"$W/tier.profile"
tiers() { "$B/plan" "$W/tier.model" "$W/tier.cluster" --json "$@" 2>&1; }
tiers >"$W/t1" && tiers --profile "$W/tier.profile" >"$W/t2" && tiers --set table.c.rows=900000 \
    >"$W/t3" && tiers --set "tier.disk=1GiB 1e9 500" >"$W/t4" &&
    tiers --set "tier.dram=7MiB lru" >"$W/t5"
if ! have python3; then
    skip "tiers: no python3"
elif python3 - "$W" 2>"$W/err" <<'END'
import json, sys
even, known, larger, slow, whole = (json.load(open(sys.argv[1] + "/t%d" % i)) for i in range(1, 6))
hits = lambda p: (4 * p["tables"][0]["hits"] + p["tables"][1]["hits"]) / 5
for p in (even, known, larger, slow):
    assert all(r["weight_bytes"] + r["state_bytes"] <= 600 << 10 for r in p["rank"])
    assert all(0 < t["rows_in_memory"] < t["rows"] for t in p["tables"])
    for t in p["tables"]: # records: rows and a checksum, a rank's in whole blocks
        least = t["rows"] * (4 * t["dim"] + 4)
        assert least <= t["file_bytes"] <= least + 8 * 4096, t
    assert sum(r["file_bytes"] for r in p["rank"]) == sum(t["file_bytes"] for t in p["tables"])
assert hits(known) > 2 * hits(even) > 0 and known["tables"][1]["hits"] < known["tables"][0]["hits"]
assert slow["step"]["lookup"] > 10 * even["step"]["lookup"]
assert all(t["hits"] == 1 and t["file_bytes"] == 0 for t in whole["tables"])
END
then pass; else fail "tiers: $(tail -3 "$W/err") $(head -2 "$W/t1")"; fi
"$B/plan" "$W/tier.model" "$W/tier.cluster" --verbose >"$W/out" 2>&1
if grep -q '^tiers: [0-9.]* % of ids find their rows in memory' "$W/out" &&
    [ "$(grep -c 'memory has room for [0-9]* of its rows' "$W/out")" = 2 ]; then pass
else fail "tiers: $(cat "$W/out")"; fi
# Where ranks' tiers have room for all rows and a batch, no rank waits for a file; where they have
# not, a plan that fits is found all the same.
awk 'BEGIN { print "batch 4096\noptimizer sgd"
    for (i = 0; i < 20; i++)
        printf "table t%d %dx%d %d\n", i, 1000 * 1.38 ^ i, i % 2 ? 64 : 16, 1 + i * 7 % 20 }' \
    >"$W/level.model"
for room in 60 36; do
    printf 'ranks 8 8\ntier dram %dMiB lfu\ntier disk 2TiB 3e9 5\n' $room >"$W/level.cluster"
    "$B/plan" "$W/level.model" "$W/level.cluster" >"$W/out$room" 2>&1
done
if grep -q '^tiers: 100.000 %' "$W/out60" && grep -q '^tiers: ' "$W/out36"; then pass
else fail "tiers with room: $(grep ^tiers "$W/out60") $(tail -1 "$W/out36")"; fi
refuse "a tier" "$good_model" 'ranks 4 2\ntier ssd 1G\n' \
    "bad.cluster:2: neither dram nor disk: 'ssd'"
refuse "a policy" "$good_model" 'ranks 4 2\ntier dram 1GiB age\n' \
    "bad.cluster:2: neither lru nor lfu: 'age'"
refuse "a disk" "$good_model" 'ranks 4 2\ntier disk 1GiB 1e9\n' \
    "bad.cluster:2: more words are wanted after 'tier'"
refuse "a small disk" "$(cat "$W/tier.model")\n" \
    'ranks 4 2\nmemory 8MiB\ntier dram 600KiB lfu\ntier disk 1 1e9 0\n' "the file of rank"
refuse "little memory" "$(cat "$W/tier.model")\n" 'ranks 4 2\nmemory 8MiB\ntier dram 1KiB lfu\n' \
    "a batch of these tables needs"
refuse "a file below nothing" "$good_model" 'ranks 4 2\ntier disk 1GiB 1e9 5\n' \
    "tier disk: the cluster has no tier dram"
printf 'neo-profile 1\ntable other 9 1:1\n' >"$W/other.profile"
refuse_option "--profile: it has none of the tables of the model" --profile "$W/other.profile"
printf 'neo-profile 1\ntable c 51 1:1\n' >"$W/other.profile"
refuse_option "it has table 'c' of 51 rows, the model of 50" --profile "$W/other.profile"
# By a profile: rows worth a copy on every rank, and in each node where links across are slow.
printf 'batch 1000\ntable a 4000x16 1 buckets=4\n' >"$W/level.model"
printf 'neo-profile 1\ntable a 4000 2:80000 30:30000 3968:39680\n' >"$W/level.profile"
levels() {
    printf 'ranks 4 2\nlocal 1e10 0\ncross %s 0\n' "$1" >"$W/level.cluster"
    "$B/plan" "$W/level.model" "$W/level.cluster" --profile "$W/level.profile" --json 2>"$W/err" |
        sed -n 's/.*\("hot_rows": [0-9]*, "warm_rows": [0-9]*\).*/\1/p'
}
same "rows worth copies, links alike" "$(levels 1e10)" '"hot_rows": 32, "warm_rows": 0'
same "rows worth copies, slow across" "$(levels 1e8)" '"hot_rows": 2, "warm_rows": 30'
# What they take: 30 rows in 2 copies of 68 bytes, whose sums of 65 bytes cross twice; 20 % of ids.
takes() { "$B/plan" "$W/level.model" "$W/level.cluster" --profile "$W/level.profile" "$@"; }
same "what warm rows take" "$(takes --json | tr '{' '\n' |
    sed -n 's/^\("rows": 30, "bytes": [0-9]*\),.*\("cross": [0-9]*\), .*}, .*/\1 \2/p')" \
    '"rows": 30, "bytes": 4080 "cross": 3900'
same "what rows take, as text" "$(takes |
    grep -cE '^(one|one a node +30 +20.0 %|one a rank +2|all, if one +4000 +100.0 %) ')" 4
refuse_option "--profile does not go with --replicas" --profile "$W/level.profile" --replicas 2
refuse_option "--profile: a --sweep without a tier does not read it" --profile "$W/level.profile" \
    --sweep --ranks 2..4

# A step drawn and as a trace; a sweep as a table, drawn and for a program.
"$B/plan" "$W/if.model" "$W/if.cluster" --timeline "$W/t.svg" >"$W/one" 2>"$W/err"
"$B/plan" "$W/if.model" "$W/if.cluster" --timeline "$W/t.json" --json >"$W/one.json" 2>>"$W/err"
"$B/plan" "$W/if.model" "$W/if.cluster" --sweep --ranks 1..16 >"$W/sweep" 2>>"$W/err"
"$B/plan" "$W/if.model" "$W/if.cluster" --sweep --ranks 1..16 --weak --json --svg "$W/sweep.svg" \
    --memory 200KiB >"$W/sweep.json" 2>>"$W/err"
if [ "$(grep -cE '^ +[0-9]+ +100 ' "$W/sweep")" = 5 ] && grep -q '^scales to ' "$W/sweep"; then
    pass
else
    fail "--sweep: $(cat "$W/sweep" "$W/err")"
fi
if have python3; then
    if python3 - "$W" <<'END'
import json, sys, xml.dom.minidom
W = sys.argv[1]
step = json.load(open(W + "/one.json"))["step"]
trace = json.load(open(W + "/t.json"))["traceEvents"]
for pid, name in enumerate(["plain", "pipelined"]):
    tasks = [e for e in trace if e["ph"] == "X" and e["pid"] == pid]
    us = step[name] * 1e6
    assert abs(max(t["ts"] + t["dur"] for t in tasks) - us) < 1e-6 * us
    for lane in range(3):  # tasks of a lane follow each other
        at = 0
        for t in sorted((t for t in tasks if t["tid"] == lane), key=lambda t: t["ts"]):
            assert t["ts"] >= at - 1e-6 * us, t
            at = t["ts"] + t["dur"]
    assert {"bottom forward", "top backward", "top reduce", "lookup"} <= {t["name"] for t in tasks}
    assert abs(sum(t["dur"] for t in tasks if t["args"]["critical"]) - us) < 1e-6 * us
picture = xml.dom.minidom.parse(W + "/t.svg")
titles = [t.firstChild.data.split(",")[0] for t in picture.getElementsByTagName("title")]
assert len(titles) == sum(e["ph"] == "X" for e in trace) and "top reduce" in titles
sweep = json.load(open(W + "/sweep.json"))
sizes = sweep["sizes"]
assert [s["ranks"] for s in sizes] == [1, 2, 4, 8, 16] and sweep["weak"]
assert [s["batch"] for s in sizes] == [25 * s["ranks"] for s in sizes]
fits = [s for s in sizes if "needs_bytes" not in s]
assert 0 < len(fits) < 5 and all(s["most_bytes"] <= 200 << 10 for s in fits)
assert all(s["needs_bytes"] > 200 << 10 for s in sizes if s not in fits)
assert all(sum(s["tables"].values()) == 2 and s["exposed"] <= s["step"] for s in fits)
best = max(fits, key=lambda s: s["samples_per_second"])
assert sweep["most_at"] == best["ranks"]
drawn = [t.firstChild.data for t in
         xml.dom.minidom.parse(W + "/sweep.svg").getElementsByTagName("text") if t.firstChild]
assert drawn.count("does not fit") == 5 - len(fits)
END
    then pass; else fail "a timeline or a sweep is wrong: $(cat "$W/err")"; fi
else
    skip "timeline and sweep: no python3"
fi
# --replicas auto is the number of groups with the shortest step of those that it lists, each as it
# is by itself; more groups hold more, and none is of ranks of several nodes but not all of them.
replicas() {
    "$B/plan" "$W/if.model" "$W/if.cluster" --set ranks=24 --set ranks_per_node=4 "$@" 2>&1
}
for every in 1 1000; do
    replicas --replicas auto --sync-every $every >"$W/auto"
    : >"$W/each"
    for r in 1 2 3 6 12 24; do
        option="--replicas $r --sync-every $every"
        [ $r = 1 ] && option=
        replicas $option >"$W/one"
        echo "$r $(sed -n 's/.*one after another \([^,]*\),.*/\1/p' "$W/one")" \
            "$(sed -n 's/.* from .* to \([^ ]* [^ ]*\) (rank .*/\1/p' "$W/one")" >>"$W/each"
    done
    same "--replicas auto, every $every: steps and memory" \
        "$(sed -n '/^replicas/,/^$/p' "$W/auto" | awk '$1 + 0 { print $1, $4, $5, $8, $9 }')" \
        "$(cat "$W/each")"
    best=$(awk '{ us = $2 * ($3 == "ms" ? 1000 : 1) } !n++ || us < least { least = us; best = $1 }
        END { print best }' "$W/each")
    same "--replicas auto, every $every" \
        "$(sed -n 's/^shortest step: \([0-9]*\) replicas* on.*/\1/p' "$W/auto")" "$best"
done
# Where links between nodes are slow and copies are seldom averaged, each node has all tables.
replicas --replicas auto --sync-every 100 --set cross.bandwidth=1e7 --set batch=9600 \
    --set table.c.rows=50000 --set table.c.buckets=4 --set unit.bottom.params=0 \
    --set unit.top.params=0 >"$W/auto"
same "--replicas auto, slow links" \
    "$(sed -n 's/^shortest step: \([0-9]*\) replicas* on.*/\1/p' "$W/auto")" 6
"$B/plan" "$W/if.model" "$W/if.cluster" --sweep --ranks 4..16 --replicas auto \
    --sync-every 1000 --json --set cross.bandwidth=1e6 >"$W/sweep.json" 2>"$W/err"
if grep -q '"ranks": 16, "replicas": [2-9]' "$W/sweep.json"; then pass
else fail "a sweep's replicas: $(cat "$W/sweep.json" "$W/err")"; fi
# Ranks that nodes do not divide, and fewer than a node has: each has its row.
"$B/plan" "$W/if.model" "$W/if.cluster" --sweep --ranks 2..16 --set ranks_per_node=6 \
    >"$W/out" 2>"$W/err"
same "a sweep across nodes of 6" "$(awk '$1 + 0 && $3 + 0 { print $1 }' "$W/out" | tr '\n' ' ')" \
    "2 4 8 16 "
refuse_option "--replicas: the ranks are not so many groups, of nodes or inside of nodes: '3'" \
    --replicas 3
refuse_option "--replicas: not a number from 1 to 4096" --replicas many
refuse_option "--sync-every: is of --replicas" --sync-every 4
refuse_option "--out $W/if.model: is read, too: give another name" --out "$W/if.model"
refuse_option "--timeline $W/a.svg: is written by --svg, too" --svg "$W/a.svg" \
    --timeline "$W/a.svg"
refuse_option "--timeline $W/./a.svg: is written by --svg, too" --svg "$W/a.svg" \
    --timeline "$W/./a.svg"
refuse_option "--out $W/../plan/if.model: is read, too" --out "$W/../plan/if.model"
# K, M, G and T of bytes are powers of 1024, of all else of 1000; a name's bytes may be coded.
told() { "$B/plan" "$W/if.model" "$W/if.cluster" "$@" 2>&1; }
told --memory 40K >"$W/got"
same "bytes of 40K" "$(grep -o '40[0-9]* bytes' "$W/got")" "40960 bytes"
same "the same as 40KiB" "$(cat "$W/got")" "$(told --memory 40KiB)"
same "the same of a file" "$(cat "$W/got" | sed 's/--memory: //')" "$(told --set memory=40K)"
same "samples of 2K" "$(told --set batch=2K --json)" "$(told --set batch=2000 --json)"
sed 's/a\.b/a%20b/' "$W/if.model" >"$W/coded.model"
"$B/plan" "$W/coded.model" "$W/if.cluster" --set table.a%20b.rows=7 --json >"$W/got" 2>&1
same "a coded name" "$(grep -o '"a b", "rows": 7,' "$W/got")" '"a b", "rows": 7,'
# Ranks that nodes do not divide: the last has fewer, and a link crosses to it.
printf "batch 100\ntable a 1000x32 2\n" >"$W/odd.model"
for ranks in "3 2" "3 3"; do
    printf "ranks $ranks\nlocal 1e12 0\ncross 1e3 0\n" >"$W/odd.cluster"
    "$B/plan" "$W/odd.model" "$W/odd.cluster" --all tw --json 2>&1 |
        sed -n 's/.*"plain": \([0-9.e+-]*\),.*/\1/p'
done >"$W/got"
if awk '{ s[NR] = $1 } END { exit !(NR == 2 && s[1] > 1 && s[2] < 0.1) }' "$W/got"; then pass
else fail "ranks 3 2 and 3 3: $(cat "$W/got")"; fi
if "$B/plan" --calibrate >"$W/out" 2>"$W/err"; then fail "--calibrate of nothing"; else
    same "--calibrate alone" "$(cat "$W/err")" \
        "plan: --calibrate: give a MODEL and a CLUSTER (--help)"
fi
same "a model alone" "$("$B/plan" "$W/if.model" 2>&1)" \
    "plan: $W/if.model: give a CLUSTER behind it (--help)"
said=$( (ulimit -f 0 && exec "$B/plan" "$W/if.model" "$W/if.cluster" --svg "$W/full.svg") 2>&1 |
    sed -n 's/^plan: .*: \(could\)/\1/p')
same "a file over a limit" "$said" "could not be written whole: File too large"
printf 'batch 100\ntable a 100x16 2 pooling=none\n' >"$W/bad.model"
printf "$good_cluster" >"$W/bad.cluster"
if "$B/plan" "$W/bad.model" "$W/bad.cluster" --replicas auto >"$W/out" 2>"$W/err" ||
    ! grep -q -- "--replicas auto: .*NEO_POOL_NONE" "$W/err"; then
    fail "replicas of rows for each id: $(cat "$W/err")"
else
    pass
fi
# The four sets on a cluster: those that fit have figures, and what is recalled is named.
printf 'ranks 1 1\nmemory 8TiB\n' >"$W/large.cluster"
"$B/plan" --sets "$W/large.cluster" >"$W/sets" 2>"$W/err"
if [ "$(grep -cE '^(a1|a2|i1) +[0-9.e+]+ +[0-9.e+]+ +[0-9.e+]+ ' "$W/sets")" = 3 ] &&
    grep -qE '^f1 .* do not fit: a rank needs .* TiB' "$W/sets" &&
    grep -q '^Recalled of the paper' "$W/sets"; then
    pass
else
    fail "--sets: $(cat "$W/sets" "$W/err")"
fi
for given in "$W/if.model" "--memory 1" "--json" "--ranks 2"; do
    if "$B/plan" $given --sets "$W/two.cluster" >"$W/out" 2>"$W/err" ||
        ! grep -q -- "^plan: ${given%% *}: .*--sets" "$W/err"; then
        fail "--sets with $given: $(cat "$W/err")"
    else
        pass
    fi
done
# One size of a sweep is the plan of that size.
"$B/plan" "$W/if.model" "$W/if.cluster" --ranks 8 >"$W/one" 2>&1
same "a sweep's step" "$(awk '$1 == 8 { print $4, $5 }' "$W/sweep")" \
    "$(sed -n 's/.*one after another \([^,]*\),.*/\1/p' "$W/one")"

# --risk: a step without chance is the timeline's at any quantile; what counts of a week is, with
# checkpoints alone, the share of time between them; with failures what theory says of it: a stretch
# of t seconds and a checkpoint take (1/f + restart) (e^(f (t + checkpoint)) - 1) at f failures a
# second. Where ranks lag a step is longer.
risk() {
    cp "$W/if.cluster" "$W/risk.cluster"
    printf "$1" >>"$W/risk.cluster"
    "$B/plan" "$W/if.model" "$W/risk.cluster" --risk 2>"$W/err" >"$W/risk"
    week=$(sed -n 's/^    a week: \([0-9.]*\) % of it.*/\1/p' "$W/risk")
    chance=$(sed -n 's/^by chance: a step takes \([0-9.]* [mu]*s\) in the mean, .*/\1/p' "$W/risk")
}
risk ''
same "--risk, no chance: a week" "$week" 100.00
same "--risk, no chance: a step" "$chance" \
    "$(sed -n 's/^    one after another \([^,]*\),.*/\1/p' "$W/risk")"
risk 'checkpoint 1000 250\n'
same "--risk, checkpoints" "${week%.*}" 80
risk 'checkpoint 1800 20\nfailures 20 300\njitter 0.1 0.1 0.1 3\n'
if awk -v got="$week" -v step="$chance" 'BEGIN {
        f = 4 / 20 / 3600
        want = 100 * 1800 / ((1 / f + 300) * (exp(f * 1820) - 1))
        exit !(got > want - 1 && got < want + 1) }' && [ "$chance" ] &&
    grep -q '99.9 % of them at most' "$W/risk"; then
    pass
else
    fail "--risk with failures: $(cat "$W/risk" "$W/err")"
fi
risk 'checkpoint 0.001 0\n'
same "--risk, checkpoints all the time" "$week" 100.00
refuse_option "fails every 0.9 s" --risk --set 'failures=0.001 0'
refuse_option "--risk: prints no --json" --risk --json
refuse_option "--risk: of one plan, not of a --sweep" --risk --sweep --ranks 1..8
refuse "a layer" "$good_model" 'ranks 4 2\nlayer sideways 1 1 1 1 1\n' \
    "bad.cluster:2: no way of a layer (forward, backward, last, dots ...): 'sideways'"
refuse "jitter" "$good_model" 'ranks 4 2\njitter 0.1 0.1 2 3\n' \
    "bad.cluster:2: not a number from 0 to 1 "

# Products of rows take what the cluster file says of them, or what their flops do.
printf 'batch 100\nunit u after dots=3x16\ntable a 9x16 1\n' >"$W/dots.model"
printf 'batch 100\nunit u after flops=96\ntable a 9x16 1\n' >"$W/flops.model"
printf "$good_cluster" >"$W/plain.cluster"
printf "$good_cluster\nlayer dots 1e-3 0 0 0 0\n" >"$W/dots.cluster"
for unit in dots.model.plain flops.model.plain dots.model.dots; do
    "$B/plan" "$W/${unit%.*}" "$W/${unit##*.}.cluster" 2>&1 | sed 1d >"$W/$unit"
done
if [ -s "$W/dots.model.plain" ] && cmp -s "$W/dots.model.plain" "$W/flops.model.plain" &&
    grep -q . "$W/dots.model.dots" && ! cmp -s "$W/dots.model.plain" "$W/dots.model.dots"; then
    pass
else
    fail "unit dots=: $(cat "$W/dots.model.plain" "$W/flops.model.plain" "$W/dots.model.dots")"
fi

# What --calibrate prints is a cluster file's: the same plan follows from it. By the plan of the
# tests, where there is one: it measures for a shorter while. A file in memory is the fastest disk.
measures=$B/tests/plan
[ -x "$measures" ] || measures=$B/plan
disk=$(mktemp -d /dev/shm/neo-plan-XXXXXX 2>/dev/null) || disk=$W
trap '[ "$disk" = "$W" ] || rm -rf "$disk"' EXIT
trap 'exit 1' HUP INT TERM
printf "batch 100\nskew 1.05\ntable a 100x16 2\n" >"$W/skewed.model"
printf 'ranks 4 2\nmemory 8MiB\ntier dram 600KiB lfu\ntier disk 1GiB 1e9 5\n' \
    >"$W/measured.cluster"
if "$B/plan" "$W/skewed.model" "$W/measured.cluster" --disk "$W/rows.tier" >"$W/measured" \
    2>"$W/err" || ! grep -q '^plan: --disk: is of --calibrate' "$W/err"; then
    fail "--disk without --calibrate: $(cat "$W/err")"
fi
"$measures" "$W/skewed.model" "$W/measured.cluster" --calibrate --disk "$disk/rows.tier" \
    >"$W/measured" 2>"$W/err"
mv "$W/measured.cluster" "$W/twice.cluster"
grep -v '^tier disk' "$W/twice.cluster" >"$W/measured.cluster"
grep -E '^[a-z_]+ [a-z0-9.e+ -]+$' "$W/measured" | sed -n '/^memory_bandwidth/,$p' |
    tee -a "$W/measured.cluster" >>"$W/twice.cluster"
"$B/plan" "$W/skewed.model" "$W/measured.cluster" >"$W/again" 2>>"$W/err"
if [ "$(grep -c '^rows ' "$W/measured.cluster")" = 9 ] &&
    [ "$(grep -c '^layer ' "$W/measured.cluster")" = 9 ] && [ ! -e "$disk/rows.tier" ] &&
    [ "$(grep '^tier disk' "$W/twice.cluster" | sort -u | wc -l)" = 2 ] && [ ! -s "$W/err" ] &&
    sed '/^memory_bandwidth/,$d' "$W/measured" | cmp -s - "$W/again"; then
    pass
else
    fail "measured figures make another plan when read: $(cat "$W/err")"
fi
# A second line of a name, and a file of an older --calibrate, which lacks a line.
if "$B/plan" "$W/skewed.model" "$W/twice.cluster" >"$W/out" 2>"$W/err" ||
    ! grep -qE "twice.cluster:[0-9]+: a second line, after line 4: 'tier disk'" "$W/err"; then
    fail "a second tier disk: $(cat "$W/err")"
else pass
fi
for line in dots_far rows_large layer_far; do
    grep -v "^$line" "$W/measured.cluster" >"$W/older.cluster"
    "$B/plan" "$W/skewed.model" "$W/older.cluster" >"$W/out" 2>"$W/err"
    same "a file without $line" "$(grep -c "older.cluster: .* but none '$line'.*--calibrate" \
        "$W/err")" 1
done
# What an older one measured is passed over, with a note; a what-if of it is refused.
{ cat "$W/measured.cluster"; echo 'step_large 0.7 # a share'; } >"$W/older.cluster"
"$B/plan" "$W/skewed.model" "$W/older.cluster" >"$W/out" 2>"$W/err"
at=$(grep -n '^step_large' "$W/older.cluster" | cut -d: -f1)
same "a file with step_large" "$(grep -c "^note: .*older.cluster:$at: 'step_large' .*anew$" \
    "$W/err")$(cmp "$W/out" "$W/again" 2>&1)" 1
refused_set='step_large=0.5'
if "$B/plan" "$W/skewed.model" "$W/measured.cluster" --set "$refused_set" >"$W/out" 2>"$W/err"; then
    fail "--set $refused_set is accepted"
else
    same "--set $refused_set" "$(cat "$W/err")" \
        "plan: --set $refused_set: nothing that a model or a cluster has: 'step_large'"
fi
# --json has what was measured, too.
"$measures" "$W/skewed.model" "$W/measured.cluster" --calibrate --json >"$W/out" 2>"$W/err"
if command -v python3 >/dev/null 2>&1; then
    same "figures of --json" "$(python3 - "$W/out" 2>&1 <<'END'
import json, sys
m = json.load(open(sys.argv[1]))["measured"]
print(len(m["rows lookup"]), len(m["layer dots"]), len(m["dots_far"]), m["flops"][0] > 1e6,
      sum(k.startswith("rows ") for k in m), m["threads"] > 0)
END
)" "6 5 4 True 9 True"
fi
if "$measures" "$W/skewed.model" "$W/measured.cluster" --memory 1K --calibrate >"$W/out" \
    2>"$W/err" || ! grep -q 'do not fit\|needs' "$W/err"; then
    fail "a rank of 1K: $(cat "$W/err")"
else
    same "lines of figures that were measured for no plan" \
        "$(grep -c '^dots_far\|^rows_large\|^rows \|^layer' "$W/out")" 21
fi
if "$B/plan" "$W/nowhere" $P/clusters/laptop.cluster 2>"$W/err"; then fail \
    "a missing file is accepted"; elif grep -q "nowhere: cannot open" "$W/err"; then
    pass
else
    fail "$(cat "$W/err")"
fi
"$B/plan" --help >"$W/out" && grep -q -- '--svg FILE' "$W/out" && pass || fail "--help"
options_tested plan "$W/out"
if [ -w /dev/full ]; then
    if "$B/plan" --help >/dev/full 2>"$W/err"; then fail "--help on a full disk"; else pass; fi
fi
printf 'batch 100\ntable a\377b"\303\251 100x16 2\n' >"$W/name.model"
if have python3; then
    name=$("$B/plan" "$W/name.model" $P/clusters/laptop.cluster --json |
        python3 -c 'import json, sys
tables = json.loads(sys.stdin.buffer.read().decode())["tables"]
print(ascii(tables[0]["name"]))')
    same "a name that is not UTF-8 in JSON" "$name" "'a\\ufffdb\"\\xe9'"
fi
if "$B/plan" --colour 2>/dev/null; then fail "an unknown option is accepted"; else pass; fi

finish programs/plans
