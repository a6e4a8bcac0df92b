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

# samples MODEL CLUSTER: the plan, its file, the same plan from the file, the picture, the numbers.
sample() {
    name=$1-$2
    if "$B/plan" $P/models/$1.model $P/clusters/$2.cluster --out "$W/$name.plan" \
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
    "$B/plan" $P/models/$1.model $P/clusters/$2.cluster --plan "$W/$name.plan" \
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
        "$B/plan" $P/models/$1.model $P/clusters/$2.cluster --plan "$W/$name.plan" \
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
sample a1 zionex
sample a2 zionex
sample i1 zionex
sample f1 zionex_ddr

"$B/plan" $P/models/criteo_kaggle.model $P/clusters/laptop.cluster --verbose >"$W/verbose" 2>&1
if [ "$(grep -c '^    not ' "$W/verbose")" = 156 ]; then
    pass
else
    fail "--verbose does not say for 26 tables why not the six other ways"
fi
for all in tw cw rw dp twrw twcw grid; do
    if "$B/plan" $P/models/a1.model $P/clusters/zionex.cluster --all $all --memory 100TiB \
        >"$W/all" 2>"$W/err" && grep -q "^$all  *[0-9]" "$W/all"; then
        pass
    else
        fail "--all $all: $(cat "$W/all" "$W/err")"
    fi
done
# What does not fit says what would, and that does.
"$B/plan" $P/models/i1.model $P/clusters/zionex.cluster --memory 5GiB >"$W/small" 2>"$W/err"
enough=$(sed -n 's/.*; \([0-9]*\) bytes each would do$/\1/p' "$W/err")
if [ -n "$enough" ] && "$B/plan" $P/models/i1.model $P/clusters/zionex.cluster --memory "$enough" \
    >"$W/enough" 2>&1; then
    pass
else
    fail "5 GiB: $(cat "$W/err" "$W/enough")"
fi

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
refuse "a number" 'batch ten\n' "$good_cluster" \
    "bad.model:1: not a number, or out of range (K, M, G, T, KiB, MiB, GiB, TiB may follow, as in 32GiB): 'ten'"
refuse "a unit" "$good_model" 'ranks 4 2\nmemory 3GB\n' \
    "bad.cluster:2: not a number, or out of range (K, M, G, T, KiB, MiB, GiB, TiB may follow, as in 32GiB): '3GB'"
refuse "a size" 'batch 100\n\ntable a 100 2\n' "$good_cluster" \
    "bad.model:3: not rows x columns, as 1000x64: '100'"
refuse "too little" 'batch 100\ntable a 100x16\n' "$good_cluster" \
    "bad.model:2: more words are wanted after 'table'"
refuse "too much" 'batch 100 7\n' "$good_cluster" "bad.model:1: more than belongs on the line: '7'"
refuse "twice" 'batch 100\ntable a 1x1 1\ntable a 1x1 1\n' "$good_cluster" \
    "bad.model:3: a second table 'a'"
tables=$(awk 'BEGIN { for (i = 0; i < 16385; i++) print "table t" i " 1x1 1" }')
refuse "too many tables" "$tables" "$good_cluster" \
    "bad.model:16385: more tables than plan takes, 16384: 't16384'"
refuse "an option" 'batch 100\ntable a 1x1 1 color=red\n' "$good_cluster" \
    "bad.model:2: not buckets=, pooling= or placements=: 'color'"
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
    "bad.cluster:1: not a number, or out of range (K, M, G, T, KiB, MiB, GiB, TiB may follow, as in 32GiB): '0'"
refuse "a curve" "$good_model" 'ranks 4 2\nrows adam2 1 2 3 4 5 6\n' \
    "bad.cluster:2: no curve: 'adam2'"
refuse "half a curve" "$good_model" 'ranks 4 2\nrows adam 1 2 3\n' \
    "bad.cluster:2: more words are wanted after 'rows'"
refuse "a skew" 'batch 100\nskew -1\n' "$good_cluster" "bad.model:2: not a number, or out of range"
# What --calibrate prints is a cluster file's: the same plan follows from it.
printf "batch 100\nskew 1.05\ntable a 100x16 2\n" >"$W/skewed.model"
printf "$good_cluster" >"$W/measured.cluster"
"$B/plan" "$W/skewed.model" "$W/measured.cluster" --calibrate >"$W/measured" 2>"$W/err"
grep -E '^[a-z_]+ [a-z0-9.e+ -]+$' "$W/measured" | sed -n '/^memory_bandwidth/,$p' \
    >>"$W/measured.cluster"
"$B/plan" "$W/skewed.model" "$W/measured.cluster" >"$W/again" 2>>"$W/err"
if [ "$(grep -c '^rows ' "$W/measured.cluster")" = 5 ] &&
    sed '/^memory_bandwidth/,$d' "$W/measured" | cmp -s - "$W/again"; then
    pass
else
    fail "measured figures make another plan when read: $(cat "$W/err")"
fi
if "$B/plan" "$W/nowhere" $P/clusters/laptop.cluster 2>"$W/err"; then fail \
    "a missing file is accepted"; elif grep -q "nowhere: cannot open" "$W/err"; then
    pass
else
    fail "$(cat "$W/err")"
fi
if "$B/plan" --help | grep -q -- '--svg FILE'; then pass; else fail "--help"; fi
if [ -w /dev/full ]; then
    if "$B/plan" --help >/dev/full 2>"$W/err"; then fail "--help on a full disk"; else pass; fi
fi
printf 'batch 100\ntable a\377b"\303\251 100x16 2\n' >"$W/name.model"
if have python3; then
    name=$("$B/plan" "$W/name.model" $P/clusters/laptop.cluster --json |
        python3 -c 'import json, sys; print(ascii(json.loads(sys.stdin.buffer.read().decode())["tables"][0]["name"]))')
    same "a name that is not UTF-8 in JSON" "$name" "'a\\ufffdb\"\\xe9'"
fi
if "$B/plan" --colour 2>/dev/null; then fail "an unknown option is accepted"; else pass; fi

finish programs/plans
