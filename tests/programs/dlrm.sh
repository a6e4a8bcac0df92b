#!/bin/sh
# dlrm.sh: the main example as a user runs it: the same bits on any number of threads, instruction
# sets, ranks (as threads) and plans, after a kill and a resume; checkpoints; bad input of every
# kind.

B=${B:-build}
. tests/harness.sh
D=$B/dlrm
W=$B/tmp/dlrm
rm -rf "$W"
mkdir -p "$W"
if [ ! -x "$D" ]; then
    fail "$D is not built"
    finish programs/dlrm
    exit
fi
samples=1200 kills=4 rounds=2 long=12000 least_auc=0.55
if [ -n "$SANITIZER" ]; then samples=700 kills=2 rounds=1 long=4000 least_auc=0.4; fi
if [ "$SANITIZER" = thread ] && setarch -R true 2>/dev/null; then D="setarch -R $D"; fi

small="--dim 8 --bottom 13-24-8 --top 24-1 --rows 400 --seed 3 --log-every 10"
model="--synthetic $samples --batch 120 $small"
# d ARGUMENTS...: the trainer. Where races are looked for, one rank that names no threads has its
# figures from the program that was built without: the same bits, ten times as fast.
d() {
    case $SANITIZER:$* in
    thread:*--ranks\ [2-9]* | thread:*--threads\ [2-9]* | thread:*-async*) $D "$@" ;;
    thread:*) "${PLAIN:-$B}/dlrm" "$@" ;;
    *) $D "$@" ;;
    esac
}
# digest ARGUMENTS...: of a run; empty if it failed (its messages are in $W/err). Files are read by
# threads.
digest() {
    case $* in
    *--data*) state_of $D "$@" ;;
    *) state_of d "$@" ;;
    esac
}
# thin: as part, but where races are looked for alone.
thin() { [ "$SANITIZER" != thread ] || part; }
# refused LABEL TEXT ARGUMENTS...: exits non-zero by itself, says TEXT on stderr, prints no digest.
# What one rank refuses has no races.
refused() {
    label=$1 text=$2
    shift 2
    : >"$W/err"
    case $SANITIZER:$* in
    thread:*--ranks*) ;;
    thread:*) return ;;
    esac
    $D "$@" >"$W/out" 2>"$W/err" </dev/null
    status=$?
    if [ $status = 0 ] || [ $status -ge 124 ]; then
        fail "$label: exit status $status"
    elif [ -n "$SANITIZER" ] && found=$(grep -E 'Sanitizer|runtime error' "$W/err"); then
        fail "$label: a sanitizer's finding: $(echo "$found" | head -1)"
    elif [ -s "$W/out" ] && grep -q '^state' "$W/out"; then
        fail "$label: printed a digest"
    elif ! grep -q -- "$text" "$W/err"; then
        fail "$label: no '$text' in: $(tail -3 "$W/err" | tr '\n' ' ')"
    else
        pass
    fi
}

# ---- the same bits ----

few="$(given $samples 400) --batch 120 $small"
base=$(digest $model --threads 1 --repro-shards 8)
base_few=$(digest $few --threads 1 --repro-shards 8)
[ -n "$base" ] || { fail "a plain run: $(tail -2 "$W/err")"; finish programs/dlrm; exit; }
for threads in 2 3 8; do
    same "threads $threads" "$(digest $model --repro-shards 8 --threads $threads)" "$base"
done
# Until there are keys samples come from files, in another order.
made=$model base_made=$base
model=$few base=$base_few
named=cat_0 # their first table
[ "$SANITIZER" != thread ] || named=C1
same "--check-finite" "$(digest $model --repro-shards 8 --ranks 2 --check-finite)" "$base"
NEO_CHECK_FINITE=1 refused "the first NaN" \
    '^dlrm: neo_[a-z_]*: .* at step [0-9]*, .*, from finite numbers' $model --lr 1e9 --threads 1
while read -r ranks more; do
    same "--dedup, $ranks ranks, $more" \
        "$(digest $model --repro-shards 8 --dedup --ranks $ranks $more)" "$base"
    if grep -qE '^dedup: of ([0-9]+)[0-9] ids .* [0-9]+ were sent' "$W/err" &&
        awk '/^dedup: of/ { exit !($9 < 0.9 * $3) }' "$W/err"; then
        pass
    else
        fail "--dedup, $ranks ranks: $(grep '^dedup' "$W/err")"
    fi
done <<END
1 --threads 2
2 --plan rw
3 --plan cw --pipeline off
4 --plan dp
4 --plan grid --nodes 2 --clip-norm 1e9
END
same "--dedup, micro-batches" \
    "$(digest $model --repro-shards 8 --micro-batches 3 --dedup --ranks 3 --plan rw)" \
    "$(digest $model --repro-shards 8 --micro-batches 3 --threads 2)"
# The lookup of a part of the ids is predicted to take less time, and fewer bytes travel.
for share in 1 0.1; do
    $D $model --ranks 3 --plan tw --nodes 3 --dedup --distinct $share --show-plan 2>"$W/err" |
        sed -n 's/.*predicted to take \([0-9.]*\) ms.*/\1/p'
done >"$W/out"
if awk 'NR == 1 { all = $1 } END { exit !(NR == 2 && $1 < all) }' "$W/out"; then pass; else
    fail "--distinct: $(cat "$W/out" "$W/err" | tr '\n' ' ')"; fi
refused "--distinct alone" '--distinct is of --dedup' $model --distinct 0.5
# Rows of empty bags stay; hot rows are tables of their own: another model, of the same bits on any
# ranks by any plan, which sends fewer bytes.
while read -r more; do
    same "--skip-empty $more" "$(digest $model --repro-shards 8 --skip-empty $more)" "$base"
done <<END
--ranks 3 --plan rw --dedup
--ranks 8 --nodes 2 --plan grid --pipeline off
END
hot="$model --repro-shards 8 --hot-rows 6"
try "--save-profile, hot rows" $D $hot --save-profile "$W/hot.profile"
hot="$hot --profile $W/hot.profile"
grep -v '^hot' "$W/hot.profile" >"$W/cold"
hot_row() { awk -v name=$named "{ print } \$2 == name { print \"hot\", name, \"$1\" }" "$W/cold"; }
hot_row 400 >"$W/bad.cold"
hot_row "3 5 3" >"$W/twice"
heated=$(digest $hot --threads 1)
while read -r more; do
    part || continue
    same "--hot-rows $more" "$(digest $hot $more)" "$heated"
done <<END
--threads 3 --pipeline off
--ranks 2 --eval-every 0.2
--ranks 3 --plan cw --show-plan
--ranks 4 --plan dp --clip-norm 1e9
--ranks 4 --nodes 2 --plan twrw
--ranks 2 --replicas 2
--ranks 4 --replicas 2 --plan rw
--ranks 8 --plan rw
END
digest $hot --ranks 4 --plan rw --checkpoint "$W/hot" >"$W/log"
same "--hot-rows, evaluated" "$(digest $hot --checkpoint "$W/hot" --eval --ranks 2)" \
    "$(cat "$W/log")"
same "--hot-rows, resumed by another plan" \
    "$(digest $hot --ranks 3 --plan tw --checkpoint "$W/hot" --resume --epochs 2)" \
    "$(digest $hot --epochs 2)"
sent() {
    state_of $D $(given $samples 400) --batch 600 $small --repro-shards 8 --ranks 8 --plan rw \
        --trace "$W/trace.json" "$@" >"$W/log"
    sed -n 's/^trace: .* by the counters //p' "$W/err"
}
all=$(sent) skipped_rows=$(sent --skip-empty)
fewer=$(sent --hot-rows 2 --profile "$W/hot.profile")
if [ "${fewer:-0}" -gt 0 ] && [ "$fewer" -lt "$skipped_rows" ] && [ "$skipped_rows" -lt "$all" ]
then pass; else fail "bytes: $all, --skip-empty $skipped_rows, --hot-rows $fewer"; fi
refused "hot rows, read without" "hot_rows is '6' there, .*: give the options of" $model \
    --repro-shards 8 --checkpoint "$W/hot" --eval
refused "hot rows without a profile" 'of a run with --save-profile FILE --hot-rows' $model \
    --hot-rows 6
refused "hot rows of no checkpoint" 'there is no checkpoint that does' $model --hot-rows 6 \
    --checkpoint "$W/none" --resume
try "a profile before its plan" $D $model --plan "$W/no.plan" --save-profile "$W/before"
try "more hot rows than are used" $D $model --hot-rows 300 --save-profile "$W/most"
try "more hot rows" $D $model --hot-rows 300 --profile "$W/most" --checkpoint "$W/hotter"
same "fewer hot rows in a checkpoint" "$(digest $model --hot-rows 300 --checkpoint "$W/hotter" \
    --resume --epochs 2)" "$(digest $model --hot-rows 300 --profile "$W/most" --epochs 2)"
try "no hot rows" $D $model --repro-shards 8 --checkpoint "$W/cool"
refused "hot rows of a checkpoint without" "hot_rows is not defined there, '6' here" \
    $model --repro-shards 8 --hot-rows 6 --checkpoint "$W/cool" --resume
refused "other hot rows than a checkpoint's" "hot_rows is '6' there" $model --repro-shards 8 \
    --hot-rows 5 --checkpoint "$W/hot" --resume
refused "another shuffle than hot rows' checkpoint" "shuffle is .* '9' here: .* is the default)\$" \
    $model --repro-shards 8 --hot-rows 6 --checkpoint "$W/hot" --resume --shuffle 9
same "--hot-rows of a checkpoint, without a profile" "$(digest $model --repro-shards 8 \
    --hot-rows 6 --ranks 2 --checkpoint "$W/hot" --resume --epochs 3)" "$(digest $hot --epochs 3)"
# How many rows are hot says model.json, however it is written; one cut off is not one of none.
of_hot="$model --repro-shards 8 --hot-rows 6 --checkpoint $W/hot --eval"
before=$(digest $of_hot)
sed -i 's/"hot_rows": \[/"hot_rows"\n:[ /' "$W"/hot/step-*/model.json
same "--hot-rows by a model.json written otherwise" "$(digest $of_hot)" "$before"
sed -i '1,/"hot_rows"/!d' "$W"/hot/step-*/model.json
refused "--hot-rows by a model.json cut off" 'model.json: byte [0-9]*: expected' $of_hot
refused "a profile of no hot rows" 'names no hot rows: count again .* --hot-rows 6 --warm-rows 9' \
    $model --hot-rows 6 --warm-rows 9 --profile "$W/cold"
try "hot rows of few" $D --synthetic 400 --rows 4 --hot-rows 9 --save-profile "$W/few"
refused "all rows hot" '--hot-rows 9: no table has more rows' --synthetic 400 --rows 4 \
    --hot-rows 9 --profile "$W/few"
refused "hot rows of other tables" "has no table '$named' of 401 rows" $hot --rows 401
refused "hot rows that are none" "cold:3: not a row of the table: '400'" $model --hot-rows 6 \
    --profile "$W/bad.cold"
refused "a profile of fewer hot rows" \
    "hot.profile names [0-9]* hot rows of table '.*': count again" \
    $model --hot-rows 7 --profile "$W/hot.profile"
refused "a hot row twice" "twice:3: a hot row twice, of table '$named'" $model --hot-rows 6 \
    --profile "$W/twice"
for more in --dedup --keys --summary '--towers 4' '--load x'; do
    refused "--hot-rows $more" '--hot-rows does not go with --' $hot $more
done
refused "hot rows on a GPU" '--hot-rows is for --device cpu' $hot --device cuda
# Warm rows, with a copy in each node: a table more, of the same bits on any ranks of any nodes.
warm="$model --repro-shards 8 --hot-rows 6 --warm-rows 30"
try "--save-profile, warm rows" $D $warm --save-profile "$W/warm.profile"
warm="$warm --profile $W/warm.profile"
warmed=$(digest $warm --threads 1)
same "--warm-rows, its report" "$(digest $warm --ranks 4 --nodes 2 --micro-batches 1 --show-plan \
    --report "$W/warm.html")" "$warmed"
while read -r more; do
    part || continue
    same "--warm-rows $more" "$(digest $warm $more)" "$warmed"
done <<END
--ranks 2 --eval-every 0.2
--ranks 2 --nodes 2 --pipeline off
--ranks 4 --nodes 2 --plan rw --clip-norm 1e9
--ranks 8 --nodes 4 --plan grid
--ranks 8 --nodes 2 --wire-forward f32 --plan tw
END
if grep -q "$named.warm.*rw.*of each node" "$W/warm.html"; then pass; else
    fail "--report does not say where warm rows are"; fi
clipped="$warm --clip-norm 0.05 --micro-batches 2 --rows-dtype bf16 --optimizer adam"
same "--warm-rows, clipped" "$(digest $clipped --ranks 4 --nodes 2)" "$(digest $clipped)"
digest $warm --ranks 4 --nodes 2 --checkpoint "$W/warm" >"$W/log"
same "--warm-rows, evaluated" "$(digest $warm --checkpoint "$W/warm" --eval --ranks 2)" \
    "$(cat "$W/log")"
same "--warm-rows of a checkpoint, by other nodes" "$(digest $model --repro-shards 8 --hot-rows 6 \
    --warm-rows 30 --ranks 8 --nodes 4 --checkpoint "$W/warm" --resume --epochs 2)" \
    "$(digest $warm --epochs 2)"
alone="$model --repro-shards 8 --warm-rows 9 --profile $W/warm.profile"
same "--warm-rows without hot ones" "$(digest $alone --ranks 4 --nodes 2)" "$(digest $alone)"
same "--warm-rows, three nodes" "$(digest $warm --repro-shards 12 --ranks 6 --nodes 3)" \
    "$(digest $warm --repro-shards 12)"
refused "warm rows, read without" "warm_rows is '30' there.*: give the options" $model \
    --repro-shards 8 --hot-rows 6 --profile "$W/warm.profile" --checkpoint "$W/warm" --eval
refused "warm rows without a profile" '--warm-rows needs --profile' $model --warm-rows 6
refused "warm rows of groups" '--warm-rows does not go with --replicas' $warm --ranks 2 --replicas 2
refused "leaves of warm rows" '--repro-shards 8: .* must be 3 times a power of two' $warm \
    --ranks 3 --nodes 3
# As many of each table as the links are worth, chosen by a plan of the ranks that begin; they stay
# on other ranks, and in half as many tables' rows where --memory has no room.
auto="$model --repro-shards 8 --hot-rows auto --warm-rows auto"
try "--save-profile, auto" $D $auto --save-profile "$W/auto.profile"
chosen="$auto --profile $W/auto.profile --ranks 4 --nodes 2"
digest $chosen --checkpoint "$W/auto" >"$W/log"
awk '/^hot / { print $1, $2, $3; next } { print }' "$W/auto.profile" >"$W/few.auto"
counts() { # of rows, in the model.json of a checkpoint
    sed -n "s/ \"$2_rows\": .\([0-9, ]*\).*/\1/p" "$1"/step*/model.json | sort -u | tail -1
}
same "auto: tables differ" "$(counts "$W/auto" warm | tr -d ' ' | tr , '\n' | sort -u | wc -l |
    awk '{ print ($1 > 1) }')" 1
same "--hot-rows auto, evaluated" "$(digest $auto --checkpoint "$W/auto" --eval --ranks 3)" \
    "$(cat "$W/log")"
try "auto, to go on" cp -r "$W/auto" "$W/auto2"
same "--hot-rows auto of a checkpoint, by other ranks" "$(digest $auto --ranks 2 --resume \
    --checkpoint "$W/auto" --epochs 2)" "$(digest $chosen --epochs 2)"
same "--hot-rows auto of a checkpoint, by its profile" "$(digest $chosen --ranks 8 --nodes 4 \
    --resume --checkpoint "$W/auto2" --epochs 2)" "$(digest $chosen --epochs 2)"
same "auto, one rank: no copies" "$(digest $chosen --ranks 1 --nodes 1)" "$(digest $model \
    --repro-shards 8 | sed 's/ .*//')"
for ranks in 1 2; do
    try "auto, $ranks ranks" $D $auto --profile "$W/auto.profile" --ranks $ranks
    same "auto, $ranks ranks: said" "$(grep -c "^note: [0-9]* hot and 0 warm rows, by the links of \
$ranks rank" "$W/log")" 1
    refused "auto, $ranks ranks, a profile of no hot rows" 'names no hot rows: count again' \
        $auto --profile "$W/cold" --ranks $ranks
done
for memory in 900000 400000; do
    try "auto, --memory $memory" $D $chosen --memory $memory --checkpoint "$W/auto$memory"
    counts "$W/auto$memory" warm >"$W/fewer"
    same "auto, --memory $memory: fewer" "$(cat "$W/fewer" | awk -v FS=, -v of="$(counts "$W/auto" \
        warm)" '{ split(of, n); for (i in n) bad += $i > n[i] / 2 } END { print bad + 0 }')" 0
done
refused "memory of warm rows alone" '--memory 200000: warm rows alone take [0-9]*$' $warm \
    --ranks 4 --nodes 2 --memory 200000
refused "memory beside warm rows" 'and [0-9]* of warm rows besides: give as many by --memory' \
    $warm --ranks 4 --nodes 2 --plan dp --memory 1000000
refused "--hot-rows auto of groups" '--hot-rows auto does not go with --replicas' $auto \
    --profile "$W/auto.profile" --ranks 2 --replicas 2
refused "a profile of fewer than auto" 'count again by .* --hot-rows auto --warm-rows auto' $auto \
    --profile "$W/few.auto" --ranks 4 --nodes 2
refused "rows that are no number" "--hot-rows -1: not a whole number from 0 to 1000000, nor auto" \
    $model --hot-rows -1
refused "a profile of fewer warm rows" 'with --hot-rows 6 --warm-rows 31' \
    $model --hot-rows 6 --warm-rows 31 --profile "$W/warm.profile"
refused "warm rows on a GPU" '--hot-rows is for --device cpu' $warm --device cuda
refused "empty bags of towers" '--skip-empty is for' $model --skip-empty --towers 4
# Tables in towers: another model, of the same bits on any ranks of any nodes.
for kind in dlrm 'dcnv2 --wire-forward bf16 --wire-backward i8' \
    'wukong --tasks 1,0.5 --top 24-2'; do
    case $kind in *--tasks*) of=$made ;; *) of=$few ;; esac # files have one label
    towers="$of --repro-shards 8 --model $kind --towers 5"
    towered=$(digest $towers)
    if [ -n "$towered" ] && [ "$towered" != "$base_few" ]; then
        pass
    else
        fail "--towers: '$towered' $(tail -1 "$W/err")"
    fi
    while read -r ranks nodes more; do
        part || continue
        same "--towers, $kind, $ranks ranks, $nodes nodes $more" \
            "$(digest $towers --ranks $ranks --nodes $nodes $more)" "$towered"
    done <<END
2 1 --threads 2
2 2 --pipeline off
3 1 --dense-shard full
4 2 --check-finite
4 4 --dense-shard zero1
6 2 --memory 100000000
END
done
towers="$few --repro-shards 8 --towers 5 --optimizer adam --lr 0.002"
towered=$(digest $towers --epochs 2)
digest $towers --ranks 4 --nodes 2 --checkpoint "$W/towers" >"$W/log"
same "--towers, evaluated" "$(digest $towers --checkpoint "$W/towers" --eval --ranks 2)" \
    "$(cat "$W/log")"
same "--towers, resumed on other nodes" \
    "$(digest $towers --ranks 3 --nodes 3 --checkpoint "$W/towers" --resume --epochs 2)" "$towered"
refused "other towers" "towers is '5' there, '6' here" $towers --towers 6 \
    --checkpoint "$W/towers" --eval
refused "more towers than tables" '--towers 27: the data has 26 sparse features' $model --towers 27
refused "towers and nodes" '--towers 3: each of the 4 --nodes needs one' $model --towers 3 \
    --ranks 4 --nodes 4
refused "towers of lr" '--towers is for --model dlrm, dcnv2 or wukong' --synthetic 100 --model lr \
    --towers 2
for more in --dedup '--clip-norm 1' '--micro-batches 2' '--plan tw' --show-plan "--save-plan $W/x" \
    --summary; do
    refused "--towers $more" '--towers does not go with --' $model --towers 4 $more
done
# Replicas of all tables in groups of ranks: the same bits, or other ones that follow from groups
# and steps alone.
while read -r options; do
    part || continue
    same "--replicas $options" "$(digest $model --repro-shards 8 --replicas $options)" "$base"
done <<END
2 --ranks 2 --threads 2
2 --ranks 4 --plan rw --dedup
2 --ranks 8 --plan grid --nodes 4 --clip-norm 1e9
4 --ranks 8 --plan cw --pipeline off
3 --ranks 6 --plan dp
END
apart="$model --repro-shards 8 --replicas 2 --sync-every 4"
apart_of=$(digest $apart --ranks 2 --epochs 2 --threads 1)
if [ -n "$apart_of" ] && [ "$apart_of" != "$(digest $model --repro-shards 8 --epochs 2)" ]; then
    pass
else
    fail "--sync-every: '$apart_of' $(tail -1 "$W/err")"
fi
same "--sync-every, again" "$(digest $apart --ranks 2 --epochs 2 --threads 2)" "$apart_of"
$D $apart --ranks 2 --epochs 2 >"$W/out" 2>"$W/err"
loss_of() { sed -n "s|.*epoch $1/2  loss=\([0-9.]*\).*|\1|p" "$W/out" "$W/err" | head -1; }
if awk "BEGIN { exit !(0$(loss_of 2) > 0 && 0$(loss_of 2) < 0$(loss_of 1)) }"; then pass; else
    fail "--sync-every: the loss does not fall: $(loss_of 1), $(loss_of 2)"; fi
same "--sync-every, rows of 4 ranks" "$(digest $apart --ranks 4 --epochs 2 --plan rw)" "$apart_of"
digest $apart --ranks 4 --checkpoint "$W/apart" --every 4 >"$W/out"
rm -r "$W/apart/$(ls "$W/apart" | tail -1)" # what it saved at its end
same "--sync-every, resumed" \
    "$(digest $apart --ranks 4 --checkpoint "$W/apart" --resume --epochs 2)" "$apart_of"
refused "another sync" 'bags.sync is .2 replicas, every 4 steps. there, not defined here' $model \
    --repro-shards 8 --checkpoint "$W/apart" --resume --epochs 3
digest $apart --ranks 4 --plan dp --checkpoint "$W/copies" >"$W/out"
same "--sync-every, copies in groups of one rank" \
    "$(digest $apart --ranks 2 --plan dp --checkpoint "$W/copies" --resume --epochs 2)" \
    "$(digest $apart --ranks 4 --plan dp --epochs 2)"
refused "other copies" "bags.$named.sync is 'every step' there, not defined here" $apart --ranks 4 \
    --plan tw --checkpoint "$W/copies" --resume --epochs 3
refused "groups of ranks" '--replicas 3: must divide the 4 ranks' $model --replicas 3 --ranks 4
refused "--every between syncs" '--every 6: replicas are alike after each --sync-every 4' $apart \
    --ranks 2 --checkpoint "$W/none" --every 6
while read -r text options; do
    refused "--replicas $options" "$(echo "$text" | tr _ ' ')" $model --ranks 2 $options
done <<END
--sync-every_is_of_--replicas --sync-every 2
--replicas_does_not_go_with_--keys --replicas 2 --keys
--replicas_does_not_go_with_--tier --replicas 2 --tier $W/tier --memory 1000000
above_1_does_not_go_with_--clip-norm --replicas 2 --sync-every 2 --clip-norm 1
above_1_does_not_go_with_--micro-batches --replicas 2 --sync-every 2 --micro-batches 2
averages_rows_of_f32,_not_of_bf16 --replicas 2 --sync-every 2 --rows-dtype bf16
--towers_does_not_go_with_--replicas --replicas 2 --towers 2
END
narrow=$(digest $model --dtype bf16 --threads 1 --repro-shards 8)
if [ -n "$narrow" ] && [ "$narrow" != "$base" ]; then
    pass
else
    fail "products of bf16: '$narrow'"
fi
second_isa=scalar # an instruction set beside the best; the fma of scalar is in software, and slow
for isa in scalar avx2 avx512 avx512bf16 amx neon; do
    for threads in 1 3; do # races are the same in each set
        case $SANITIZER:$threads:$isa in thread:3:avx2) ;; thread:3:*) continue ;; esac
        got=$(NEO_ISA=$isa digest $model --repro-shards 8 --threads $threads)
        if [ -z "$got" ] && grep -q 'not supported\|cannot run\|lacks\|not available\|has no' \
            "$W/err"; then
            [ $threads = 3 ] || skip "NEO_ISA=$isa: this machine has none"
        else
            [ $isa != avx512 ] || second_isa=avx2
            same "NEO_ISA=$isa threads $threads" "$got" "$base"
            [ $threads = 1 ] || same "bf16, NEO_ISA=$isa threads $threads" \
                "$(NEO_ISA=$isa digest $model --dtype bf16 --repro-shards 8 --threads $threads)" \
                    "$narrow"
        fi
    done
done
same "bf16, 3 ranks" \
    "$(digest $model --dtype bf16 --repro-shards 8 --ranks 3 --dense-shard full)" "$narrow"
for ranks in 2 4 8; do
    same "ranks $ranks" "$(digest $model --repro-shards 8 --ranks $ranks)" "$base"
done
for shards in 1 5; do # another definition is another result; V need not be a power of two
    other=$(digest $model --repro-shards $shards --threads 1)
    if [ -n "$other" ] && [ "$other" != "$base" ]; then
        pass
    else
        fail "repro-shards $shards: '$other'"
    fi
    same "repro-shards $shards threads 3" "$(digest $model --repro-shards $shards --threads 3)" \
        "$other"
done
other=$(digest $model --repro-shards 8 --seed 4)
if [ -n "$other" ] && [ "$other" != "$base" ]; then pass; else fail "another seed: '$other'"; fi
for optimizer in sgd adam adamw lamb "ftrl --l1 0.01 --l2 0.1"; do
    part || continue
    a=$(NEO_ISA=$second_isa digest $few --optimizer $optimizer --threads 1 --repro-shards 4 \
        --lr 0.003)
    b=$(digest $few --optimizer $optimizer --threads 2 --repro-shards 4 --ranks 3 --lr 0.003)
    same "optimizer $optimizer" "$a" "$b"
done
for dtype in f16 bf16 i8; do
    part || continue
    a=$(NEO_ISA=$second_isa digest $few --rows-dtype $dtype --threads 1 --repro-shards 4)
    b=$(digest $few --rows-dtype $dtype --threads 3 --repro-shards 4 --ranks 2)
    same "rows of $dtype" "$a" "$b"
    if [ -n "$a" ] && [ "$a" != "$(digest $few --repro-shards 4)" ]; then
        pass
    else
        fail "rows of $dtype are those of f32"
    fi
done
a=$(NEO_ISA=$second_isa digest $few --shuffle 500 --schedule cosine --warmup 5 \
    --weight-decay 0.01 --threads 1)
b=$(digest $few --shuffle 500 --schedule cosine --warmup 5 --weight-decay 0.01 --threads 8)
same "shuffle, schedule, decay" "$a" "$b"

# ---- ids that are keys: rows come and go alike on any ranks, under any plan, after a resume ----

model=$made base=$base_made
keyed="$(given $samples 3000) --batch 120 --dim 32 --bottom 13-24-32 --top 24-1 --rows 3000"
keyed="$keyed --keys --key-rows 200 --seed 3"
for kind in '' '--evict lru --admit 2' '--evict lfu:4' '--evict age:3' '--admit 3 --bloom' \
    '--prune 0.2' '--evict score' '--evict score --dedup --micro-batches 3'; do
    part || continue
    one=$(digest $keyed $kind)
    same "keys $kind, 3 threads" "$(digest $keyed $kind --threads 3)" "$one"
    same "keys $kind, rw" "$(digest $keyed $kind --ranks 4 --plan rw)" "$one"
    same "keys $kind, cw" "$(digest $keyed $kind --ranks 3 --plan cw --clip-norm 1e9)" \
        "$(digest $keyed $kind --clip-norm 1e9)"
    rm -rf "$W/keyed"
    digest $keyed $kind --ranks 4 --plan rw --checkpoint "$W/keyed" >"$W/out"
    same "keys $kind, resumed" "$(digest $keyed $kind --epochs 2 --ranks 2 --plan tw \
        --checkpoint "$W/keyed" --resume)" "$(digest $keyed $kind --epochs 2)"
done
# Weights alone know how old their keys are: of those that age has taken none is read.
rm -rf "$W/keyed"
$D $keyed --evict age:3 --checkpoint "$W/keyed" >"$W/out" 2>"$W/err"
$D $keyed --evict age:3 --checkpoint "$W/keyed" --predict "$W/keyed.0" >"$W/out" 2>"$W/err"
$D $keyed --evict age:3 --checkpoint "$W/keyed" --optimizer sgd --ranks 2 --plan rw \
    --predict "$W/keyed.1" >"$W/out" 2>"$W/err"
if [ -s "$W/keyed.0" ] && cmp -s "$W/keyed.0" "$W/keyed.1"; then pass; else
    fail "predictions of keys by weights alone: $(cat "$W/err")"; fi
$D $keyed >"$W/out" 2>"$W/err"
if grep -q '^keys [0-9]*, hits .*, evicted [1-9]' "$W/out"; then pass; else fail "keys: a line"; fi
$D $keyed --prune 0.2 >"$W/out" 2>"$W/err"
if cat "$W/out" "$W/err" | grep -q '^pruned [1-9][0-9]* keys'; then pass; else
    fail "pruned: $(cat "$W/err")"
fi
refused "another --prune" 'keys' $keyed --prune 0.5 --evict age:3 --checkpoint "$W/keyed" --resume
refused "pruned rows of no keys" '--prune is of --keys' $model --prune 0.1
refused "rows of no keys" '--key-rows is of --keys' $model --key-rows 64 --evict lru
refused "other keys" 'keys' $keyed --evict lfu --checkpoint "$W/keyed" --resume
refused "keys of another range" "rows is '3000' there, '3001' here" $keyed --evict age:3 \
    --rows 3001 --checkpoint "$W/keyed" --resume
$D $keyed --ranks 2 --plan dp --show-plan >"$W/out" 2>"$W/err"
if grep -q 'dp was asked for: its keys come and go' "$W/out"; then pass; else
    fail "keys as copies: why"
fi
# 16 ids of samples with a label, 320 of others, the 16 again: they have kept their rows, of the 32
# that there are, by their scores alone. A weight of 0 is as no label.
awk 'BEGIN { print "y,w,c"; for (i = 0; i < 352; i++)
    printf("%d,%d,k%d\n", (i < 16), (i < 16 && i % 4), i % 336) }' >"$W/scored.csv"
printf 'header\ny label\nw sample-weight\nc category hash rows=1000000000\n' >"$W/scored.w"
printf 'header\ny label\nw skip\nc category hash rows=1000000000\n' >"$W/scored.y"
for kind in 'y score --threads 1:4.55' 'w score --ranks 1:3.41' 'y lru --threads 1:0.00'; do
    columns=${kind%% *} want=${kind##*:} more=${kind#* }
    $D --data "$W/scored.csv" --format delimited --columns "$W/scored.$columns" --model lr \
        --batch 8 --keys --key-rows 32 --repro-shards 1 \
        --evict ${more%:*} >"$W/out" 2>"$W/err"
    if grep -q "^keys 32, hits $want %" "$W/out"; then pass; else
        fail "hits of $kind: $(cat "$W/out" "$W/err" | tail -4)"; fi
done
awk 'BEGIN { print "y,z,w,c"; for (i = 0; i < 64; i++)
    printf("%d,0,%s,k%d\n", i % 2, i == 40 ? "3e38" : "1", i) }' >"$W/vast.csv"
printf 'header\ny label weight=2\nz label\nw sample-weight\nc category hash rows=1000000000\n' \
    >"$W/vast.columns"
refused "a label of 0, whose weight is inf" 'step 3: the loss is inf' --data "$W/vast.csv" \
    --format delimited --columns "$W/vast.columns" --model lr --batch 16 --keys --key-rows 32 \
    --repro-shards 4 --evict score
refused "a period of scores" '--evict score:3: not lru' $keyed --evict score:3
refused "scores of a tier" '--tier has lru and lfu' $model --tier "$W/tier" --memory 1M \
    --evict score
refused "an age of nothing" '--evict age: not lru' $keyed --evict age
refused "evict of no keys" '--evict is of --keys or --tier' $model --evict lru
refused "a filter of nothing" '--bloom is of --admit 2 to 15' $keyed --bloom
refused "another filter" 'keys' $keyed --admit 3 --bloom --checkpoint "$W/keyed" --resume

# ---- a cross network in place of the dot products ----

for cross in 2x5 2; do
    base_cross=$(digest $few --model dcnv2 --cross $cross --threads 1 --repro-shards 8)
    if [ -n "$base_cross" ] && [ "$base_cross" != "$base_few" ]; then
        pass
    else
        fail "--model dcnv2 --cross $cross: '$base_cross' $(tail -1 "$W/err")"
    fi
    same "dcnv2 $cross, $second_isa" "$(NEO_ISA=$second_isa digest $few --model dcnv2 \
        --cross $cross --repro-shards 8 --threads 3)" "$base_cross"
    while read -r options; do
        part || continue
        same "dcnv2 $cross, $options" \
            "$(digest $few --model dcnv2 --cross $cross --repro-shards 8 $options)" "$base_cross"
    done <<END
--ranks 2 --plan tw --dense-shard zero1
--ranks 4 --plan rw --dense-shard full
--ranks 3 --plan dp --pipeline off
END
done
same "dcnv2, bf16" "$(digest $few --model dcnv2 --dtype bf16 --repro-shards 8 --ranks 3)" \
    "$(digest $few --model dcnv2 --dtype bf16 --repro-shards 8 --threads 2)"
digest $few --model dcnv2 --repro-shards 8 --checkpoint "$W/cross" >"$W/out"
refused "a cross network's checkpoint without it" "model is 'dcnv2' there" $few --repro-shards 8 \
    --checkpoint "$W/cross" --resume
same "dcnv2, resumed on 3 ranks" "$(digest $few --model dcnv2 --repro-shards 8 --epochs 2 \
    --ranks 3 --plan rw --checkpoint "$W/cross" --resume)" \
    "$(digest $few --model dcnv2 --repro-shards 8 --epochs 2)"
refused "--cross without dcnv2" '--cross is for --model dcnv2' $model --cross 2
refused "a rank above the width" 'rank is above the 216 columns' $model --model dcnv2 --cross 2x217
refused "--cross 2x" '--cross 2x: not layers' $model --model dcnv2 --cross 2x

# ---- weights of samples ----

# Weights of 2 at a rate are no weights at twice that rate, bit for bit; figures stay. A weight of 0
# takes a sample out of the figures: those of the file without it.
awk -F, 'BEGIN { for (i = 1; i <= 700; i++) {
    x = (i * 7919) % 101 / 50 - 1
    y = x + (i * 31 % 17) / 9 > 1
    print y "," x "," i % 23 "," 2 "," (i % 3 > 0) * 3 "," i % 5 / 2 } }' \
    >"$W/weights.csv"
awk -F, '$5 > 0' "$W/weights.csv" >"$W/weights.some"
weigh="--format delimited --batch 70 --dim 4 --bottom 1-4 --top 8-1 --optimizer sgd
    --repro-shards 8"
i=3
for weight in none two zero any; do
    printf 'y label\nx dense\nc category hash rows=40\n' >"$W/$weight.columns"
    for k in 3 4 5; do
        if [ $k = $i ] && [ $weight != none ]; then echo "w$k sample-weight"; else \
            echo "w$k skip"; fi
    done >>"$W/$weight.columns"
    [ $weight = none ] || i=$((i + 1))
done
# weighed COLUMNS OPTIONS...: the figures without speed, and the digest.
weighed() {
    columns=$1
    shift
    d $weigh --columns "$W/$columns.columns" --data "$W/weights.csv" --test "$W/weights.csv" "$@" \
        2>"$W/err" | sed '/^epoch/d; s/ samples.*//'
}
single_weight=$(weighed none --lr 0.5)
same "weights of 2" "$(weighed two --lr 0.25 --ranks 3)" "$single_weight"
any=$(weighed any --lr 0.25 --threads 1)
if [ -n "$any" ] && [ "$any" != "$single_weight" ]; then pass; else fail "weights: '$any'"; fi
same "weights, 4 ranks" "$(weighed any --lr 0.25 --ranks 4 --plan rw --dense-shard full)" "$any"
same "weights, $second_isa" "$(NEO_ISA=$second_isa weighed any --lr 0.25 --threads 3)" "$any"
weighed any --lr 0.25 --checkpoint "$W/weighed" --every 3 >"$W/out"
rm -r "$W/weighed/$(ls "$W/weighed" | tail -1)" # what it saved at its end
same "weights, resumed" "$(weighed any --lr 0.25 --checkpoint "$W/weighed" --resume --ranks 2)" \
    "$any"
weighed two --lr 0.25 --checkpoint "$W/weighed" --resume --epochs 2 >"$W/out"
if grep -q 'columns is .crc32c [0-9a-f]*. there' "$W/err"; then pass; else fail "other columns"; fi
same "weights of 0" "$(weighed zero --checkpoint "$W/weighed" --eval | grep test)" \
    "$(weighed none --test "$W/weights.some" --checkpoint "$W/weighed" --eval | grep test)"
printf '1,0,3,2,1,-1\n' >"$W/weights.bad"
refused "a weight below 0" "weights.bad:1:11: w5: expected a weight of at least 0, found '-1'" \
    $weigh --columns "$W/any.columns" --data "$W/weights.bad"
printf '1,0,3,2,1,\n' >"$W/weights.bad"
refused "a weight that is missing" "weights.bad:1:11: w5: the weight is missing" \
    $weigh --columns "$W/any.columns" --data "$W/weights.bad"

# ---- dropout ----

# What is dropped follows from seed, step and place in the batch. The last epoch's end is a step of
# fewer batches; a resumed run and one on ranks with parts of a batch (5 leaves) drop the same.
drop="$(given 900 400) --batch 120 --rows 400 --seed 3 --repro-shards 5 --epochs 2 --dropout 0.3"
dropped=$(digest $drop --threads 1)
if [ -n "$dropped" ] && [ "$dropped" != "$(digest $drop --dropout 0)" ]; then pass; else
    fail "--dropout changes nothing: '$dropped'"; fi
if [ "$dropped" != "$(digest $drop --seed 4)" ]; then pass; else fail "dropout without seed"; fi
while read -r options; do
    part || continue
    same "dropout, $options" "$(digest $drop $options)" "$dropped"
done <<END
--ranks 2 --plan tw --dense-shard zero1
--ranks 3 --plan rw --dense-shard full --pipeline off
--ranks 4 --plan dp --check-finite
--eval-every 1/3 --ranks 2
END
same "dropout, $second_isa" "$(NEO_ISA=$second_isa digest $drop --threads 3)" "$dropped"
for kind in 'deepfm --top 16-8-1' 'wukong --dtype bf16' 'dcnv2 --micro-batches 3'; do
    same "dropout, $kind" "$(digest $drop --model $kind --ranks 3)" \
        "$(digest $drop --model $kind --threads 1)"
done
rm -rf "$W/drop"
digest $drop --ranks 2 --checkpoint "$W/drop" --every 5 >"$W/out"
$D $drop --checkpoint "$W/drop" --eval 2>/dev/null | grep ^test | cut -d' ' -f 1-4 >"$W/whole"
same "no dropout in evaluation" "$($D $drop --dropout 0.5 --checkpoint "$W/drop" --eval \
    2>/dev/null | grep ^test | cut -d' ' -f 1-4)" "$(cat "$W/whole")"
rm -r "$W/drop/$(ls "$W/drop" | tail -1)"
same "dropout, resumed" "$(digest $drop --ranks 3 --checkpoint "$W/drop" --resume)" "$dropped"
refused "another dropout" "dropout is '0.3' there, not defined here" \
    $drop --dropout 0 --epochs 3 --checkpoint "$W/drop" --resume
refused "--dropout 1" '--dropout 1: must be below 1' $drop --dropout 1
refused "--dropout 2" '--dropout 2: not a number from 0 to 1' $drop --dropout 2
refused "--dropout of fm" '--dropout: --model fm has no MLP' $drop --model fm

# ---- several labels, each a task ----

# One in seven lacks the label `buy`. Twice the weights at half the rate are the same numbers; each
# has figures, of those samples that have it.
awk 'BEGIN { print "click,age,city,buy"
    for (i = 1; i <= 700; i++) {
        x = (i * 7919) % 101 / 50 - 1
        y = x + (i * 31 % 17) / 9 > 1
        print y "," x "," i % 23 "," (i % 7 ? y && i % 3 : "") } }' >"$W/tasks.csv"
for weights in '1 0.25' '2 0.5' '1 2' '1 1'; do
    set -- $weights
    { echo header; echo "click label weight=$1"; echo "age dense"
      echo "city category hash rows=40"; echo "buy label weight=$2"; } >"$W/tasks$1$2.columns"
done
# tasks COLUMNS OPTIONS...: as weighed.
tasks() {
    columns=$1
    shift
    d --format delimited --batch 70 --dim 4 --bottom 1-4 --top 8-2 --optimizer sgd \
        --repro-shards 8 --columns "$W/tasks$columns.columns" --data "$W/tasks.csv" \
        --test "$W/tasks.csv" "$@" 2>"$W/err" | sed '/^epoch/d; s/ samples.*//'
}
two_tasks=$(tasks 10.25 --lr 0.5)
same "twice the weights" "$(tasks 20.5 --lr 0.25 --ranks 3)" "$two_tasks"
if [ "$(echo "$two_tasks" | grep -c '^test [a-z]* auc=0\.[0-9]* logloss=0\.[0-9]* ne=0')" = 2 ]
then
    pass
else
    fail "figures of two tasks: $two_tasks"
fi
other=$(tasks 12 --lr 0.5)
if [ -n "$other" ] && [ "$other" != "$two_tasks" ]; then pass; else fail "weights: '$other'"; fi
while read -r options; do
    part || continue
    same "two tasks, $options" "$(tasks 10.25 --lr 0.5 $options)" "$two_tasks"
done <<END
--threads 1
--ranks 4 --plan rw --dense-shard full --check-finite
--ranks 2 --plan cw --pipeline off
END
same "two tasks, $second_isa" "$(NEO_ISA=$second_isa tasks 10.25 --lr 0.5 --threads 3)" "$two_tasks"
rm -rf "$W/tasks"
tasks 10.25 --lr 0.5 --checkpoint "$W/tasks" --every 3 >"$W/out"
rm -r "$W/tasks/$(ls "$W/tasks" | tail -1)"
same "two tasks, resumed" "$(tasks 10.25 --lr 0.5 --checkpoint "$W/tasks" --resume --ranks 2)" \
    "$two_tasks"
tasks 12 --lr 0.5 --checkpoint "$W/tasks" --resume --epochs 2 >"$W/out"
if grep -q "tasks is 'click 1, buy 0.25' there" "$W/err" ||
    grep -q 'columns is .crc32c [0-9a-f]*. there' "$W/err"; then pass; else
    fail "other weights: $(tail -1 "$W/err")"; fi
# Predictions are a number for each task; labels may be missing in whole. Figures in log, report and
# --mllog have the task's name.
cut -d, -f 2,3 "$W/tasks.csv" >"$W/tasks.new"
tasks 10.25 --checkpoint "$W/tasks" --eval --predict "$W/tasks.out" --test "$W/tasks.new" >"$W/out"
same "predictions of two tasks" "$(grep -c '^0\.[0-9]*,0\.[0-9]*$' "$W/tasks.out")" 700
if grep -q 'all labels of the test buy data' "$W/err"; then pass; else fail "no labels"; fi
tasks 10.25 --epochs 2 --log "$W/tasks.jsonl" --report "$W/tasks.html" --mllog "$W/tasks.ml" \
    >"$W/out"
if grep -q '"test_buy_auc":0.*"test_buy_calibration":[01].*_accuracy":0' "$W/tasks.jsonl" &&
    grep -q 'Normalized entropy, buy' "$W/tasks.html" &&
    [ "$(grep -c 'eval_accuracy.*"epoch_num": 2, "label": [01]' "$W/tasks.ml")" = 2 ] &&
    [ "$(grep -c 'tracked_stats.*"mae": 0.*"label": [01]' "$W/tasks.ml")" = 4 ]; then
    pass
else
    fail "figures of tasks"
fi
# Figures of training, of a window and of all: the same on any ranks, and after a kill.
figures() {
    sed 's/"loss":[^,]*,//; s/"samples_per_s":[^,]*,//' "$1" | grep '"window\|_gauc"' >"$2"
}
window="10.25 --lr 0.5 --epochs 2 --window 150 --log-every 2 --group city --ndcg 3"
tasks $window --log "$W/window.1" --report "$W/window.html" >"$W/out"
figures "$W/window.1" "$W/figures.1"
if [ "$(grep -c '"window_buy_auc":0.*"lifetime_buy_ne":' "$W/figures.1")" = 10 ] &&
    [ "$(grep -c '"lifetime_buy_auc":0.*"lifetime_buy_auc_error":0' "$W/figures.1")" = 10 ] &&
    grep -q 'AUC of training' "$W/window.html" && grep -q 'lifetime buy' "$W/window.html" &&
    grep -q 'Grouped NDCG, buy' "$W/window.html" &&
    grep -q '^test buy .* gauc=0\.[0-9]* ndcg@3=0\.[0-9]*$' "$W/out"; then
    pass
else
    fail "figures of training: $(head -1 "$W/figures.1")"
fi
same "figures change no number" "$(sed -n 's/^state //p' "$W/out")" \
    "$(tasks 10.25 --lr 0.5 --epochs 2 | sed -n 's/^state //p')"
# The last window is what an evaluation says of those samples where nothing is learned.
head -1 "$W/tasks.csv" >"$W/tasks.last"
tail -150 "$W/tasks.csv" >>"$W/tasks.last"
tasks 10.25 --lr 0 --window 150 --test "$W/tasks.last" --log "$W/window.2" >"$W/out"
same "a window is its samples" \
    "$(sed -n 's/.*"window_click_logloss":\([^,]*\).*/\1/p' "$W/window.2" | tail -1)" \
    "$(sed -n 's/.*"test_click_logloss":\([^,]*\).*/\1/p' "$W/window.2")"
# So is the lifetime, and its AUC is as near to the exact one as it says.
tasks 10.25 --lr 0 --window 1 --test "$W/tasks.csv" --log "$W/window.2" >"$W/out"
figure() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$W/window.2" | tail -1; }
for task in click buy; do
    same "the lifetime of $task" "$(figure lifetime_${task}_logloss)" \
        "$(figure test_${task}_logloss)"
    error=$(figure lifetime_${task}_auc_error)
    if awk "BEGIN { d = $(figure lifetime_${task}_auc) - $(figure test_${task}_auc)
        exit !(d * d <= ($error + 1e-15) ^ 2 && $error > 0 && $error < 0.01) }"; then pass; else
        fail "lifetime AUC of $task: $(tail -2 "$W/window.2")"; fi
done
# The log ends with the figures of all, however few steps have come since the point before.
d $model --window 100 --log-every 9 --log "$W/window.2" >"$W/out" 2>"$W/err"
if tail -2 "$W/window.2" | head -1 |
    grep -q "\"step\":$(((samples + 119) / 120)),.*lifetime_auc"; then
    pass
else
    fail "the last window: $(tail -2 "$W/window.2")"
fi
tasks $window --ranks 3 --plan rw --dedup --log "$W/window.2" >"$W/out"
figures "$W/window.2" "$W/figures.2"
try "figures on 3 ranks" cmp "$W/figures.1" "$W/figures.2"
tasks $window --ranks 2 --checkpoint "$W/window" --every 13 >"$W/out"
rm -r "$W/window/$(ls "$W/window" | tail -1)" "$W/window.2"
tasks $window --checkpoint "$W/window" --resume --log "$W/window.2" >"$W/out"
figures "$W/window.2" "$W/figures.2"
tail -5 "$W/figures.1" >"$W/figures.3"
try "figures after a resume" cmp "$W/figures.3" "$W/figures.2"
saved_state=$(sed -n 's/^state //p' "$W/out")
same "evaluated with its window" "$saved_state" \
    "$(tasks 10.25 --window 150 --checkpoint "$W/window" --eval | sed -n 's/^state //p')"
tasks 10.25 --checkpoint "$W/window" --resume --epochs 3 >"$W/out"
if grep -q "window is '150' there, not defined here" "$W/err"; then pass; else fail "no window"; fi
refused "--ndcg without --group" '--ndcg is of groups: give --group' $model --ndcg 3
tasks 10.25 --auc-capacity 20 --group city >"$W/out"
if grep -q 'warning: no AUC: the test data has [0-9]* samples, --auc-capacity is 20' "$W/err" &&
    grep -q '^test buy auc=nan logloss=0.* gauc=nan' "$W/out"; then
    pass
else
    fail "--auc-capacity: $(tail -2 "$W/err") $(grep '^test' "$W/out")"
fi
same "--auc-capacity changes no number" "$(sed -n 's/^state //p' "$W/out")" \
    "$(tasks 10.25 | sed -n 's/^state //p')"
tasks 10.25 --group town >"$W/out"
if grep -q -- '--group town: no sparse feature has that name; the first is city' "$W/err"; then
    pass
else
    fail "--group town: $(cat "$W/err")"
fi
# Each task of lr is the lr of its label alone.
for name in click buy; do
    { echo header; echo "$name label"; echo "age dense"
      echo "city category hash rows=40"; } >"$W/alone.columns"
    awk -F, '$4 != ""' "$W/tasks.csv" >"$W/alone.csv"
    lr="--format delimited --batch 70 --model lr --optimizer sgd --lr 0.5 --data $W/alone.csv
        --test $W/alone.csv"
    d $lr --columns "$W/alone.columns" 2>"$W/err" | sed -n "s/^test/test $name/p" |
        sed 's/ samples.*//' >"$W/alone"
    same "lr of $name and another" "$(d $lr --columns "$W/tasks11.columns" 2>"$W/err" |
        sed -n "/^test $name/s/ samples.*//p")" "$(cat "$W/alone")"
done
sed 's/^city .*//' "$W/tasks11.columns" >"$W/tasks.numbers"
numbers="--format delimited --data $W/tasks.csv --columns $W/tasks.numbers --repro-shards 2"
for kind in lr dlrm; do
    same "two tasks of numbers, $kind" "$(digest $numbers --model $kind --ranks 2)" \
        "$(digest $numbers --model $kind)"
done
sed 's/^\([01],[^,]*,[^,]*\),.*/\1,/' "$W/tasks.csv" >"$W/tasks.none"
tasks 10.25 --data "$W/tasks.none" >"$W/out"
if grep -q 'warning: all labels buy of the training data are missing' "$W/err"; then pass; else
    fail "a task without labels"; fi
# Of generated data and records --tasks has the weights, and so the number.
this="--synthetic 900 --batch 120 --rows 400 --seed 3 --repro-shards 8 --tasks 1,0.5,2"
base_tasks=$(digest $this --threads 1)
for kind in dlrm dcnv2 'wukong --micro-batches 2' lr 'fm --dim 5' 'ffm --dim 3' \
    'deepfm --dim 5 --dropout 0.2'; do
    thin || continue
    one_rank=$(digest $this --model $kind --threads 1)
    same "3 tasks, $kind" "$(digest $this --model $kind --ranks 3 --plan rw)" "$one_rank"
done
rm -rf "$W/tasks"
same "3 tasks, saved" "$(digest $this --checkpoint "$W/tasks")" "$base_tasks"
refused "tasks of other weights" "tasks is 'label_0 1, label_1 0.5, label_2 2' there" $this \
    --tasks 1,0.5,1 --checkpoint "$W/tasks" --resume --epochs 2
refused "as many words, one label" "$W/tasks" $this --tasks 1 --checkpoint "$W/tasks" --resume
refused "--tasks of lines" 'the description has them' --tasks 1,2 --format delimited \
    --columns "$W/tasks12.columns" --data "$W/tasks.csv"
for kind in criteo libsvm libffm; do
    refused "--tasks of $kind" "--tasks: --format $kind: a line has one label" --tasks 1,2 \
        --format $kind --data "$W/tasks.csv"
done
refused "--tasks 1,x" '--tasks 1,x: not up to 16 numbers above 0' $this --tasks 1,x
refused "--tasks 0" '--tasks 0: not up to 16 numbers' $this --tasks 0
refused "--tasks 6" '--tasks 6: a single label has nothing to be weighed against' $model --tasks 6
refused "more tasks than are made" '--tasks 1,1,1,1,1: 5 labels, .* have up to 4' $model \
    --tasks 1,1,1,1,1
refused "--tasks 1," '--tasks 1,: not up to 16 numbers' $this --tasks 1,
refused "--tasks of nothing" '--tasks : not up to 16 numbers' $this --tasks ''
refused "--tasks below f32" '--tasks 1e-60: not up to 16 numbers' $this --tasks 1e-60
refused "a top MLP of one task" 'ending with 3, the labels of a sample' $this --top 64-1
# HugeCTR's Raw: the labels, 13 numbers and one id.
printf "$(awk 'function word(x) { return x ? "\\000\\000\\200\\077" : "\\000\\000\\000\\000" }
    BEGIN { for (i = 0; i < 301; i++) {
        printf "%s%s", word(i % 2), word(i % 3 == 0)
        for (k = 0; k < 13; k++) printf "%s", word(k ? 0 : i % 2)
        printf "\\00%d\\000\\000\\000", i % 3 } }')" >"$W/tasks.raw"
records="--format raw --hot 1 --data $W/tasks.raw --test $W/tasks.raw --repro-shards 4 --lr 0.1
    --batch 30 --epochs 20"
$D $records --tasks 1,1 --ranks 2 2>"$W/err" >"$W/out"
if [ "$(grep -c '^test label_[01] auc=1.0000' "$W/out")" = 2 ]; then pass; else
    fail "raw of two labels: $(cat "$W/out" "$W/err")"; fi
refused "raw of one label" 'ends inside row 321' $records

# A model of another optimizer is evaluated by its weights; else the option that differs is named.
rm -rf "$W/adam"
tiny="--synthetic 300 --rows 50 --checkpoint $W/adam"
$D $tiny --optimizer adam 2>/dev/null | grep ^test | cut -d' ' -f 1-4 >"$W/trained"
same "--eval without the optimizer" "$($D $tiny --eval --ranks 2 2>"$W/err" | grep ^test |
    cut -d' ' -f 1-4)" "$(cat "$W/trained")"
if grep -q 'of another --optimizer or --window: only its weights' "$W/err"; then pass; else \
    fail "--eval without the optimizer says nothing"; fi
refused "--eval of another model" "model is not defined there, 'dcnv2' here" $tiny --eval \
    --optimizer adam --model dcnv2
refused "--eval of another dim" 'bags.C1.weight has shape' $tiny --eval --dim 8

# ---- logistic regression, factorization machines ----

# Losses of 20 steps as PyTorch has them (tests/golden/make_dlrm.py), to 1e-5 of each.
printf 'y label\na dense\nb dense\nc dense\nd dense\n' >"$W/models.columns"
for i in 0 1 2 3 4; do echo "$i list sep=|"; done >>"$W/models.columns"
golden=tests/golden/dlrm
mlps='--dim 8 --top 16-1 --bottom 4-16-8'
while read -r name kind; do
    d --data ${golden}_models.csv --format delimited --columns "$W/models.columns" --model $kind \
        --load ${golden}_$name.safetensors --batch 32 --lr 0.05 --eps 1e-8 --log-every 1 \
        --repro-shards 1 --log "$W/losses.jsonl" >"$W/out" 2>"$W/err"
    sed -n 's/.*"loss":\([^,]*\).*/\1/p' "$W/losses.jsonl" >"$W/losses"
    if sed -n "s/^$name //p" ${golden}_models.losses | paste - "$W/losses" |
        awk '{ if (!($2 >= 0.99999 * $1 && $2 <= 1.00001 * $1)) bad++ }
            END { exit bad > 0 || NR != 20 }'; then
        pass
    else
        fail "$name: losses that are not PyTorch's: $(tail -1 "$W/err")"
    fi
done <<END
lr lr
fm fm --dim 8
deepfm deepfm --dim 8 --top 16-1
ffm ffm --dim 3
dcnv2 dcnv2 $mlps --cross 2x5
square dcnv2 $mlps --cross 2
wukong wukong $mlps --wukong 2x12
dlrm dlrm $mlps
towers dlrm $mlps --towers 2
END

some=$(given 900 400)
for kind in lr 'fm --dim 32' ffm 'deepfm --dim 32 --top 24-1' 'wukong --dim 8'; do
    this="$some --batch 120 --rows 400 --seed 3 --repro-shards 8 --model $kind"
    base_kind=$(digest $this --threads 1)
    same "$kind, $second_isa" "$(NEO_ISA=$second_isa digest $this --threads 3)" "$base_kind"
    while read -r options; do
        part || continue
        same "$kind, $options" "$(digest $this $options)" "$base_kind"
    done <<END
--ranks 2 --plan tw --dense-shard zero1
--ranks 4 --plan rw --dense-shard full --check-finite
--ranks 3 --plan dp --pipeline off
--ranks 2 --plan cw --threads 1
END
    narrow_kind=$(digest $this --dtype bf16 --threads 2)
    same "$kind, bf16, 3 ranks" "$(digest $this --dtype bf16 --ranks 3)" "$narrow_kind"
    if [ "$narrow_kind" != "$base_kind" ]; then pass; else fail "$kind: bf16 changes nothing"; fi
    case $SANITIZER:$kind in thread:wukong*) ;; thread:*) continue ;; esac
    rm -rf "$W/kind"
    same "$kind, saved" "$(digest $this --checkpoint "$W/kind")" "$base_kind"
    rm -f "$W/predicted"
    same "$kind, evaluated on 2 ranks" \
        "$(digest $this --checkpoint "$W/kind" --eval --predict "$W/predicted" --ranks 2)" \
        "$base_kind"
    same "$kind, predictions" "$(wc -l <"$W/predicted")" 226
    more="--epochs 2 --micro-batches 3"
    same "$kind, resumed on 3 ranks" "$(digest $this --epochs 2 --ranks 3 --plan rw \
        --checkpoint "$W/kind" --resume)" "$(digest $this --epochs 2)"
    same "$kind, $more" "$(digest $this $more --ranks 3)" "$(digest $this $more --threads 1)"
    if d $this --summary >"$W/out" && 
        grep -Eq '^(linear.0|wukong.1.linear).weight' "$W/out"; then pass; else \
        fail "$kind --summary"; fi
    refused "$kind's checkpoint for another" "model is '${kind%% *}' there" $few \
        --repro-shards 8 --checkpoint "$W/kind" --resume
done
refused "--wukong without wukong" '--wukong is for --model wukong' $model --wukong 2x8
refused "--wukong 2" '--wukong 2: not layers' $model --model wukong --wukong 2
plain="--synthetic 200 --rows 50"
refused "a model that is none" \
    '--model fmm: not dlrm, dcnv2, wukong, lr, fm, ffm or deepfm' $plain \
    --model fmm
refused "--dim of lr" '--dim 8: --model lr has one weight' $plain --model lr --dim 8
refused "--dim 1 of fm" '--dim 1: --model fm has a weight' $plain --model fm --dim 1
refused "--bottom of fm" '--bottom: --model fm has no bottom MLP' $plain --model fm --bottom 13-16
refused "--top of fm" '--top: --model fm has no top MLP' $plain --model fm --top 8-1

# ---- many ranks: the same bits for any number of them, any plan and nodes, with and without the
# pipeline ----

wide="$(given $samples 400) --batch 100 --dim 32 --bottom 13-24-32 --top 24-1 --rows 400"
wide="$wide --seed 3 --repro-shards 8"
single=$(digest $wide --threads 1 --plan tw --pipeline off)
# on RANKS OPTIONS...: the digest of the wide model; a run that hangs has none.
on() {
    ranks=$1
    shift
    case $ranks in
    1) digest $wide --ranks 1 "$@" ;;
    *) state_of timeout 900 $D $wide --ranks "$ranks" "$@" ;;
    esac
}
while read -r ranks nodes plan pipeline more; do
    part || continue
    same "$ranks ranks, $nodes nodes, $plan, pipeline $pipeline $more" \
        "$(on $ranks --nodes $nodes --plan $plan --pipeline $pipeline $more)" "$single"
done <<END
1 1 auto on
1 1 rw on --threads 2
2 1 auto on --threads 2
2 2 tw off
2 1 cw on --dense-shard zero1
2 1 rw off
2 2 dp on
3 1 rw on --dense-shard full
3 3 cw off
4 2 auto on
4 1 auto off --memory 20000000
4 2 twrw on --dense-shard full
4 2 twcw off
4 2 grid on
4 1 dp off
5 1 grid on --dense-shard zero2
6 3 twrw off
8 4 grid on --dense-shard full
8 2 rw on
8 2 twcw on
8 1 dp on
END
# One norm limits the gradients of MLPs and tables. Where it is never reached, what is kept steps as
# what is not.
same "micro-batches of one" "$(on 2 --micro-batches 1 --plan rw)" "$single"
same "a norm that is not reached" "$(on 4 --plan cw --clip-norm 1e9)" "$single"
clipped=$(on 1 --clip-norm 0.05)
if [ -n "$clipped" ] && [ "$clipped" != "$single" ]; then
    pass
else
    fail "--clip-norm changes nothing: '$clipped'"
fi
while read -r ranks nodes plan pipeline more; do
    part || continue
    same "clip-norm, $ranks ranks, $nodes nodes, $plan, pipeline $pipeline $more" \
        "$(on $ranks --nodes $nodes --plan $plan --pipeline $pipeline $more --clip-norm 0.05)" \
            "$clipped"
done <<END
1 1 auto off --dense-shard full --threads 2
2 1 auto on
2 1 tw off --dense-shard zero1
2 1 cw on --dense-shard zero2
3 1 rw on --dense-shard full
4 1 dp on
4 2 grid off --dense-shard full
4 2 twrw on
END
for optimizer in sgd adam lamb; do
    part || continue
    a=$(on 1 --clip-norm 0.05 --optimizer $optimizer --lr 0.003 --rows-dtype bf16)
    same "clip-norm, $optimizer" \
        "$(on 4 --clip-norm 0.05 --optimizer $optimizer --lr 0.003 --rows-dtype bf16 --plan cw)" \
        "$a"
done
# Three batches make a step; the epoch ends with fewer.
three=$(on 1 --batch 60 --micro-batches 3 --clip-norm 0.05)
if [ -n "$three" ] && [ "$three" != "$(on 1 --batch 60 --clip-norm 0.05)" ]; then
    pass
else
    fail "--micro-batches: '$three'"
fi
while read -r ranks nodes plan pipeline more; do
    part || continue
    same "micro-batches, $ranks ranks, $nodes nodes, $plan, pipeline $pipeline $more" \
        "$(on $ranks --nodes $nodes --plan $plan --pipeline $pipeline $more --batch 60 \
            --micro-batches 3 --clip-norm 0.05)" "$three"
done <<END
2 1 rw on --dense-shard zero2
3 1 cw off
4 1 dp on --dense-shard full
4 2 grid on
END
rm -rf "$W/micro"
micro="$wide --batch 60 --micro-batches 3 --epochs 2 --optimizer adam --lr 0.002"
whole_micro=$(digest $micro)
$D $micro --ranks 2 --checkpoint "$W/micro" --every 7 --plan dp >"$W/out" 2>"$W/err"
rm -r "$W/micro/$(ls "$W/micro" | tail -1)" # what it saved at its end
same "micro-batches, resumed" \
    "$(digest $micro --ranks 4 --plan cw --checkpoint "$W/micro" --resume)" "$whole_micro"
rm -r "$W/micro/$(ls "$W/micro" | tail -1)"
refused "other micro-batches" 'micro_batches' $micro --micro-batches 2 --checkpoint "$W/micro" \
    --resume
refused "a directory that cannot be made" '/proc/nowhere cannot be made: No such' $model \
    --checkpoint /proc/nowhere/ckpt
refused "no micro-batches" 'micro-batches must be at least 1' $model --micro-batches 0
refused "columns of data without" "is for --format delimited, adult or criteo, not synthetic" \
    $model --columns x
refused "columns of a format that has them" "delimited, adult or criteo, not libsvm" \
    --data x --format libsvm --columns x
refused "a norm below 0" 'clip-norm -1: not a number' $model --clip-norm -1
# Rows cut for fewer ranks than there are buckets, and for none: another definition, the same on one
# rank.
fewer=$(on 1 --row-buckets 2)
same "two buckets" "$(on 4 --row-buckets 2 --plan rw)" "$fewer"
uncut=$(on 1 --row-buckets 1)
same "one bucket" "$(on 4 --row-buckets 1 --plan rw)" "$uncut"
if grep -q 'warning: --plan rw: 26 of 26 tables cannot be placed so' "$W/err"; then
    pass
else
    fail "no warning: $(cat "$W/err")"
fi
# Without --repro-shards there are 8 leaves, or, of more ranks, as many, which is said.
while read -r leaves options; do
    part || continue
    state=$(state_of timeout 900 $D $model $options)
    same "notes of repro-shards, $options" \
        "$(grep -c "note: --repro-shards is $leaves for so many ranks" "$W/err")" $((leaves > 8))
    same "the default of repro-shards, $options" "$state" "$(digest $model --repro-shards $leaves)"
done <<END
8 --threads 2
8 --ranks 4
8 --ranks 8 --plan rw
12 --ranks 12
END
# A run that goes on has those of its checkpoint, wherever that lies, and one that reads at least as
# many. Bags have several ids: their sums depend on --row-buckets, which are as many.
leaves="--synthetic 600 --batch 60 --preset mlperf-dcnv2 --bottom 13-8 --dim 8 --top 8-1
    --cross 2x5 --rows 60"
three=$(digest $leaves --repro-shards 3 --epochs 2)
saved_three=$(digest $leaves --repro-shards 3 --checkpoint "$W/leaves")
try "predictions of 3 leaves" $D $leaves --repro-shards 3 --checkpoint "$W/leaves" \
    --predict "$W/leaves.3"
try "predictions of the checkpoint's leaves" $D $leaves --checkpoint "$W/leaves" \
    --predict "$W/leaves.0"
same "predictions of the checkpoint's leaves" "$(cksum <"$W/leaves.0")" "$(cksum <"$W/leaves.3")"
same "3 leaves, read on 4 ranks" "$(digest $leaves --ranks 4 --checkpoint "$W/leaves" --eval)" \
    "$saved_three"
refused "too many ranks for a checkpoint" \
    '--repro-shards 3, of the checkpoint: must be at least the 4 ranks' \
    $leaves --epochs 2 --ranks 4 --checkpoint "$W/leaves" --resume
refused "other leaves than a checkpoint's" "repro_shards is '3' there, '8' here" $leaves \
    --epochs 2 --repro-shards 8 --checkpoint "$W/leaves" --resume
mkdir -p "$W/leaves.old" "$W/leaves.best/best"
for step in "$W"/leaves/step-*; do
    cp -r "$step" "$W/leaves.old/$(basename "$step").old"
    cp -r "$step" "$W/leaves.best/best/"
done
while read -r folder options; do
    same "leaves of a checkpoint, $folder" \
        "$(digest $leaves --epochs 2 --checkpoint "$W/$folder" --resume $options)" "$three"
done <<END
leaves --ranks 3 --plan rw
leaves.old --ranks 2
leaves.best --threads 2
END
# A plan as text, changed by hand, is a plan.
same "a plan is written" "$(on 4 --nodes 2 --plan grid --save-plan "$W/plan")" "$single"
same "and read" "$(on 4 --nodes 2 --plan "$W/plan")" "$single"
sed 's/ grid .*/ rw 3,0-2/' "$W/plan" >"$W/plan2"
same "and changed" "$(on 4 --nodes 2 --plan "$W/plan2" --pipeline off)" "$single"
refused "a plan of other ranks" 'plan' $wide --ranks 2 --plan "$W/plan"
# By the model file of a run's own data build/plan finds for four ranks the plan that they find.
# owned NAME ARGUMENTS...
owned() {
    name=$1
    shift
    $D "$@" --save-plan-model "$W/own.model" >"$W/log" 2>"$W/err" || fail "$name: $(cat "$W/err")"
    $D "$@" --ranks 4 --threads 1 --epochs 0 --save-plan "$W/own.plan" >"$W/out" 2>"$W/err"
    "$B/plan" "$W/own.model" "$W/own.cluster" --out "$W/found.plan" >"$W/out" 2>"$W/err"
    same "$name: the plan of --save-plan-model" "$(cat "$W/found.plan")" "$(cat "$W/own.plan")"
}
if [ -z "$SANITIZER" ]; then
    printf 'ranks 4 4\nlocal 1e12 0\npipeline on\n' >"$W/own.cluster"
    owned adult --format adult --data examples/data/adult/adult.data --dim 8 --row-buckets 4 \
        --rows-dtype f16 --repro-shards 4 --batch 512
    same "the figures of --save-plan-model" "$(sed '1d; /^table [b-z]/d' "$W/own.model")" \
"batch 512
unit bottom beside 5-64-8
unit pairs after dots=13x8
unit top after 86-64-1
wire f32 f32
optimizer rowwise_adagrad
table age_bucket 17x8 1 buckets=4 dtype=f16"
    awk 'BEGIN { for (i = 0; i < 400; i++)
            print i % 2, i % 7 ":2", i % 3 ? i % 5 + 10 ":1" : "" }' >"$W/own.svm"
    owned libsvm --data "$W/own.svm" --format libsvm --model lr --optimizer ftrl --repro-shards 4
    same "ids and weights of --save-plan-model" "$(grep -cE \
        '^(weighted on|optimizer ftrl|table feature_0 15x1 1.665 buckets=4)$' \
        "$W/own.model")" 3
    $D --preset mlperf-dcnv2 --synthetic 200 --rows 90 --batch 100 --repro-shards 4 \
        --save-plan-model "$W/own.model" >"$W/log" 2>"$W/err"
    same "ids of --save-plan-model" "$(grep -cE '^table (C1 90x128 3|C21 90x128 100) buckets=4$' \
        "$W/own.model")" 2
    $D $model --dedup --save-plan-model "$W/own.model" --save-profile "$W/own.profile" \
        >"$W/log" 2>"$W/err"
    same "--save-plan-model of --dedup" "$(grep -c '^distinct 0\.' "$W/own.model")" 1
    try "a model and a profile of one pass" "$B/plan" "$W/own.model" "$W/own.cluster" \
        --profile "$W/own.profile"
fi
refused "--save-plan-model of towers" "--towers does not go with --save-plan-model" $model \
    --towers 2 --save-plan-model "$W/own"
refused "--save-plan-model and --summary" "--summary does not go with --save-plan-model" $model \
    --summary --save-plan-model "$W/own"
refused "--save-plan-model of ranks" "--save-plan-model counts on one rank" $model --ranks 2 \
    --save-plan-model "$W/own"
refused "--save-plan-model of keys" "--keys does not go with --save-plan-model" $model --keys \
    --save-plan-model "$W/own"
refused "--save-plan-model of nothing" "--save-plan-model needs --data" --test "$lines" \
    --checkpoint "$W/ckpt" --save-plan-model "$W/own"
refused "--save-plan-model nowhere" "--save-plan-model: $W/none/m: No such file" $model \
    --save-plan-model "$W/none/m"
refused "tables that do not fit" '[0-9] bytes each would do: give as many by --memory' $wide \
    --ranks 2 --memory 1000
$D $wide --ranks 4 --show-plan 2>"$W/err" >"$W/out"
if grep -q '^plan: 26 tables on 4 ranks' "$W/out" && [ "$(grep -c '^table ' "$W/out")" = 26 ]; then
    pass
else
    fail "--show-plan"
fi
same "a shown plan changes nothing" "$(sed -n 's/^state //p' "$W/out")" "$single"

# Wires are part of the definition: they change the bits, for all plans alike.
for wire in f16 bf16 f8e4m3 f8e5m2 i8 i4; do
    part || continue
    coded=$(on 1 --wire-forward $wire --wire-backward $wire)
    if [ -n "$coded" ] && [ "$coded" != "$single" ]; then
        pass
    else
        fail "wire $wire changes nothing: '$coded'"
    fi
    same "wire $wire, rw" \
        "$(on 4 --wire-forward $wire --wire-backward $wire --plan rw --pipeline off)" "$coded"
    same "wire $wire, grid" \
        "$(on 4 --nodes 2 --wire-forward $wire --wire-backward $wire --plan grid)" "$coded"
    same "wire $wire, tw" "$(on 3 --wire-forward $wire --wire-backward $wire --plan tw)" "$coded"
done
coded=$(on 1 --wire-backward bf16)
same "one wire" "$(on 8 --plan rw --wire-backward bf16)" "$coded"
refused "a wire that is none" '--wire-forward i3: not f32, f16' $wide --wire-forward i3
refused "another" '--wire-backward i3: not f32, f16' $wide --towers 2 --wire-backward i3

# A step needs nothing of the ranks that have no samples: here most have none.
tiny="--synthetic 9 --batch 3 $small --repro-shards 8"
same "ranks without samples" "$(digest $tiny --ranks 8 --plan rw)" "$(digest $tiny)"

# ---- checkpoints: kill at random moments, resume on another number of threads and instruction set
# ----

long="--synthetic $long --epochs 2 --batch 96 --shuffle 1000 --optimizer adam --lr 0.002 $small"
began=$(date +%s%N)
whole=$(digest $long --threads 2)
ms=$((($(date +%s%N) - began) / 1000000))
[ -n "$whole" ] || fail "the long run: $(tail -2 "$W/err")"
seed=$(date +%s)
round=0
killed=0 resumed=0 over=0
while [ $round -lt $rounds ]; do
    round=$((round + 1)) kill=0 delta=
    [ $round = 2 ] && delta="--checkpoint-delta 3 --checkpoint-async"
    rm -rf "$W/kill"
    while [ $kill -lt $kills ]; do
        kill=$((kill + 1))
        delay=$(awk -v s=$((seed + 100 * round + kill)) -v ms=$ms \
            'BEGIN { srand(s); printf "%.3f", ms / 1000 * rand() * 0.5 }')
        $D $long --threads $kill --checkpoint "$W/kill" --every 7 --resume $delta \
            >"$W/out" 2>"$W/err" &
        pid=$!
        # The first is killed as soon as it has saved something; the others at any moment.
        while [ $kill = 1 ] && kill -0 $pid 2>/dev/null &&
            ! ls "$W/kill"/step-*/manifest.json >/dev/null 2>&1; do
            sleep 0.02
        done
        [ $kill = 1 ] || sleep "$delay"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        status=$?
        if [ $status = 137 ]; then
            killed=$((killed + 1))
        elif [ $status != 0 ]; then
            fail "a run to be killed: exit status $status: $(tail -1 "$W/err")"
        elif [ $kill = 1 ] && [ $over -lt 5 ]; then # it was over before: again
            over=$((over + 1)) kill=0
            rm -rf "$W/kill"
        fi
        grep -q 'loaded step' "$W/err" && resumed=$((resumed + 1))
    done
    isa=$second_isa
    if [ $round = 1 ]; then # the last steps by scalar, which is slow
        $D $long --threads 2 --checkpoint "$W/kill" --every 7 --resume >"$W/out" 2>"$W/err"
        rm -r "$W/kill/$(ls "$W/kill" | tail -1)"
        isa=scalar
    fi
    got=$(NEO_ISA=$isa digest $long --threads 3 --checkpoint "$W/kill" --every 50 --resume \
        $delta)
    grep -q 'loaded step' "$W/err" && resumed=$((resumed + 1))
    same "killed and resumed by $isa (round $round, delays seeded by $seed)" "$got" "$whole"
done
if [ $killed -ge 1 ] && [ $resumed -ge 1 ]; then
    pass
else
    fail "$killed kills and $resumed resumes: the delays miss"
fi
left=$(ls "$W/kill" | wc -l)
if [ "$left" -le 5 ]; then pass; else fail "$left entries left in the checkpoint folder"; fi

# Saved under one plan and number of ranks, resumed under another in the middle of an epoch, as
# often as there are lines.
rm -rf "$W/plans"
move="$wide --epochs 2 --shuffle 300 --optimizer adam --lr 0.002 --checkpoint $W/plans --resume"
steps=$((samples / 100 * 2))
whole_move=$(digest $wide --epochs 2 --shuffle 300 --optimizer adam --lr 0.002)
while read -r left ranks nodes plan pipeline more; do
    timeout 900 $D $move --ranks $ranks --nodes $nodes --plan $plan --pipeline $pipeline $more \
        --every $((steps - left)) \
        >"$W/out" 2>"$W/err" || fail "$ranks ranks, $plan: $(tail -1 "$W/err")"
    rm -r "$W/plans/$(ls "$W/plans" | tail -1)" # what it saved at its end
done <<END
9 4 2 grid on --dense-shard full
6 1 1 auto off
5 8 1 rw on
3 3 1 cw off --dense-shard zero1
2 2 1 dp on
END
if grep -q 'epoch 2/2  loss=[0-9.]* (since the resume)' "$W/out"; then pass; else
    fail "the loss of a part of an epoch: $(cat "$W/out")"; fi
same "resumed across plans" "$(digest $move --ranks 4 --nodes 2 --plan twcw)" "$whole_move"
if grep -q "loaded step $((steps - 2)) from" "$W/err"; then
    pass
else
    fail "it was not resumed: $(cat "$W/err")"
fi
same "and once more at the end" "$(digest $move --ranks 3 --plan rw)" "$whole_move"
refused "other row buckets" "row_buckets is '8' there, '4' here" $move --ranks 2 --row-buckets 4
refused "another wire" "wire_forward is 'f32' there, 'i8' here" $move --ranks 2 --wire-forward i8
refused "a new run over it, on 4 ranks" 'add --resume' $wide --ranks 4 --checkpoint "$W/plans"
for ranks in 1 2 8; do
    timeout 900 $D $wide --optimizer adam --ranks $ranks --checkpoint "$W/plans" \
        --predict "$W/predictions_$ranks" >"$W/eval_$ranks" 2>"$W/err"
    same "predictions on $ranks ranks" "$(cksum <"$W/predictions_$ranks")" \
        "$(cksum <"$W/predictions_1")"
    same "figures on $ranks ranks" "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval_$ranks")" \
        "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval_1")"
done

# Differential checkpoints: each run goes on from the last but one of the run before, under another
# plan. What reads checkpoints reads a chain.
chain="${move% --checkpoint*} --checkpoint $W/delta --checkpoint-delta 3 --every 3"
chained=0
while read -r ranks plan more; do
    same "a chain, $ranks ranks, $plan" "$(digest $chain --ranks $ranks --plan $plan $more)" \
        "$whole_move"
    chained=$((chained + $(cat "$W"/delta/step-*/manifest.json | grep -c base_step)))
    ! thin || same "a chain, evaluated" "$(digest $chain --ranks 2 --eval)" "$whole_move"
    rm -r "$W/delta/$(ls "$W/delta" | tail -1)"
done <<END
1 auto
4 cw --resume
3 rw --resume --dense-shard zero1 --checkpoint-async
2 dp --resume --checkpoint-async
1 auto --resume --checkpoint-async
END
if [ $chained -ge 5 ]; then pass; else fail "$chained differential checkpoints of 5 runs"; fi
same "a checkpoint beside training" "$(digest $model --repro-shards 8 --ranks 3 \
    --checkpoint "$W/async" --every 2 --checkpoint-async)" "$base"
same "the same, evaluated" "$(digest $model --repro-shards 8 --checkpoint "$W/async" --eval)" \
    "$base"
refused "--checkpoint-async alone" "--checkpoint-async needs --checkpoint" $model --checkpoint-async
refused "--checkpoint-delta alone" "needs --checkpoint" $model --checkpoint-delta 3
refused "--checkpoint-bits alone" "needs --checkpoint" $model --checkpoint-bits 4
refused "--checkpoint-bits 3" "not 8, 4 or 2" $model --checkpoint "$W/none" --checkpoint-bits 3
for more in --resume "--checkpoint-delta 3" --keys "--hot-rows 2 --profile $W/hot.profile" \
    "--towers 2"; do
    refused "--checkpoint-bits $more" "--checkpoint-bits does not go with --" \
        $model --checkpoint "$W/none" --checkpoint-bits 4 $more
done
refused "--checkpoint-delta on a GPU" "not on a GPU yet" $model --checkpoint "$W/none" \
    --checkpoint-delta 3 --device cuda

# Resuming when all is done changes nothing; so does evaluating.
same "resume at the end" "$(digest $long --checkpoint "$W/kill" --resume)" "$whole"
if grep -q '^test auc=.* nothing to do$' "$W/out_of" && ! grep -q samples/s "$W/out_of"; then
    pass
else
    fail "resume at the end: $(cat "$W/out_of")"
fi
short="$model --checkpoint $W/ckpt"
trained=$(digest $short --repro-shards 8 --threads 2)
same "saving changes nothing" "$trained" "$base"
find "$W/ckpt" -type f -exec cksum {} + | sort >"$W/before"
$D $short --repro-shards 8 --eval --resume >"$W/eval" 2>"$W/err"
same "evaluation leaves the state" "$(sed -n 's/^state //p' "$W/eval")" "$base"
$D $short --repro-shards 8 --eval --resume --predict "$W/predictions" >"$W/eval2" 2>"$W/err"
same "prediction leaves the state" "$(sed -n 's/^state //p' "$W/eval2")" "$base"
same "evaluated twice" "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval2")" \
    "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval")"
# Predicting with a checkpoint trains nothing, not even with the training data and another
# definition given.
echo '{"kept":1}' >"$W/kept.jsonl"
$D $short --repro-shards 4 --epochs 3 --predict "$W/predictions2" --log "$W/kept.jsonl" \
    >"$W/eval4" 2>"$W/err"
same "prediction trains nothing" "$(sed -n 's/^state //p' "$W/eval4")" "$base"
if cmp -s "$W/predictions" "$W/predictions2"; then
    pass
else
    fail "predictions differ under another definition"
fi
if head -1 "$W/kept.jsonl" | grep -q kept; then pass; else fail "evaluation emptied the log"; fi
find "$W/ckpt" -type f -exec cksum {} + | sort >"$W/after"
if cmp -s "$W/before" "$W/after"; then pass; else fail "evaluation touched the checkpoint"; fi
refused "a new run over an old one's checkpoints" 'resume' $short --repro-shards 8
state_of $D $model --epochs 0 --checkpoint "$W/loadable" >/dev/null
refused "--load of checkpoints" \
    "--load $W/loadable: checkpoints of a run, not a safetensors file: give them by --checkpoint" \
    $model --load "$W/loadable"
: >"$W/no_directory"
refused "--checkpoint of a file" "$W/no_directory: cannot list the directory: it is a file" \
    $model --checkpoint "$W/no_directory"
refused "prediction over its input" 'read and written' --data "$W/predictions" \
    --test "$W/predictions" --predict "$W/predictions"
refused "an untrained model" 'checkpoint' --test "$W/predictions"
lines=$(grep -cE '^[01]?\.?[0-9e.-]+$' "$W/predictions")
same "one prediction per sample" "$lines" $((samples / 4 + 1))
$D $model --repro-shards 8 >"$W/run" 2>"$W/err"
same "evaluation of a checkpoint" "$(grep -o 'auc=.*ne=[^ ]*' "$W/run" | tail -1)" \
    "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval" | tail -1)"

weights=$(find "$W/ckpt" -name 'model-*.safetensors' | head -1)
$D $model --repro-shards 8 --load "$weights" --eval >"$W/eval3" 2>"$W/err"
same "weights loaded by name" "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval3" | tail -1)" \
    "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval" | tail -1)"

timeout 900 $D $model --repro-shards 8 --load "$weights" --ranks 4 --plan rw --eval >"$W/eval3" \
    2>"$W/err"
same "weights loaded by name on 4 ranks" "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval3" | tail -1)" \
    "$(grep -o 'auc=.*ne=[^ ]*' "$W/eval" | tail -1)"

# A run that goes on for fewer steps than a point of the log takes has a loss to show.
brief="--synthetic 700 --batch 100 $small --log-every 30 --checkpoint $W/brief"
$D $brief --epochs 5 >"$W/out" 2>"$W/err"
$D $brief --epochs 6 --resume >"$W/out" 2>"$W/err"
same "the loss of a short resumed run" \
    "$(sed -n 's/.* loss \([0-9.]*\) .*/\1/p' "$W/err" | tail -1)" \
    "$(sed -n 's/.* loss=\([0-9.]*\) .*/\1/p' "$W/out")"

# ---- checkpoints that must be refused, each with the difference named ----

refused "other repro-shards" "repro_shards is '8' there, '4' here" $short --repro-shards 4 --resume
refused "other batch" 'batch' $short --repro-shards 8 --batch 100 --resume
refused "another number of generated samples" '--synthetic: .* another number of samples was' \
    $short --repro-shards 8 --synthetic $((samples + 200)) --resume
refused "other seed" 'seed' $short --repro-shards 8 --seed 9 --resume
refused "other optimizer" 'optim' $short --repro-shards 8 --optimizer sgd --resume
refused "other products" 'dtype' $short --repro-shards 8 --dtype bf16 --resume
refused "other rows" 'rows_dtype' $short --repro-shards 8 --rows-dtype bf16 --resume
refused "other model" 'top' $short --repro-shards 8 --top 25-1 --resume
refused "other dimension" 'has shape .*: give the --data, --rows, --dim' $short --repro-shards 8 \
    --dim 4 --bottom 13-24-4 --resume
refused "other rows" 'bags.C1.weight has shape .*: give the --data, --rows' $short \
    --repro-shards 8 --rows 500 --resume
find "$W/ckpt" -type f -exec cksum {} + | sort >"$W/after"
if cmp -s "$W/before" "$W/after"; then pass; else fail "a refused resume touched the checkpoint"; fi

state=$(find "$W/ckpt" -name 'state-*.safetensors' | head -1)
for file in "$weights" "$state"; do
    name=$(basename "$file")
    cp "$file" "$W/saved"
    size=$(wc -c <"$file")
    printf '\125' | dd of="$file" bs=1 seek=$((size - 9)) conv=notrunc 2>/dev/null
    refused "a damaged $name" "$name" $short --repro-shards 8 --resume
    head -c $((size / 2)) "$W/saved" >"$file"
    refused "half of $name" "$name" $short --repro-shards 8 --resume
    rm "$file"
    refused "$name is gone" "$name" $short --repro-shards 8 --resume
    cp "$W/saved" "$file"
done
same "whole again" "$(digest $short --repro-shards 8 --resume)" "$base"
digest $model --repro-shards 8 --checkpoint "$W/two" --every 4 >"$W/out"
newest=$W/two/$(ls "$W/two" | tail -1)
: >"$newest/$(basename "$weights")"
refused "a damaged newest checkpoint" \
    "the checkpoint before it is of step [48]: to go on from that, move $newest away" \
    $model --repro-shards 8 --checkpoint "$W/two" --resume
mv "$newest" "$W/moved"
same "the one before it" "$(digest $model --repro-shards 8 --checkpoint "$W/two" --resume)" "$base"
# Of differential ones all go that build on the damaged one, not the newest alone.
digest $model --repro-shards 8 --checkpoint "$W/links" --every 2 --checkpoint-delta 9 >"$W/out"
newer=$(ls -d "$W"/links/step-* | tail -n +2) # than the first
: >"$W/links/step-000000000004/$(basename "$weights")"
refused "a damaged checkpoint below the newest" \
    "says [0-9]*; what follows step 4 builds on it: .* move $W/links/step-0*4 and all newer ones" \
    $model --repro-shards 8 --checkpoint "$W/links" --resume
rm -r $newer
same "what is before it" \
    "$(digest $model --repro-shards 8 --checkpoint "$W/links" --resume)" "$base"
if [ -x "$B/gpt" ]; then
    gpt="$B/gpt --data README.md --layers 1 --heads 1 --width 16 --context 8 --batch 4 --steps 1"
    try "gpt" $gpt --sample 0 --repro-shards 8 --checkpoint "$W/gpt"
    for more in --resume --eval; do
        refused "a checkpoint of gpt, $more" 'it is a checkpoint of gpt, not of dlrm' $model \
            --repro-shards 8 --checkpoint "$W/gpt" $more
    done
    $gpt --repro-shards 8 --checkpoint "$W/ckpt" --resume >"$W/out" 2>"$W/err"
    same "a checkpoint of dlrm" "$(grep -o 'it is a checkpoint of .*' "$W/err")" \
        "it is a checkpoint of dlrm, not of gpt"
fi
find "$W/ckpt" -name 'manifest.json' -exec rm {} +
refused "no manifest" 'checkpoint' $short --repro-shards 8 --eval
echo 'not a checkpoint' >"$W/plain_file"
refused "a checkpoint folder that is a file" 'plain_file' $model --checkpoint "$W/plain_file"
if grep -q 'train 100%' "$W/err"; then
    fail "an impossible checkpoint folder is found after training"
else
    pass
fi
refused "weights that are text" 'plain_file' $model --load "$W/plain_file" --eval
refused "weights that are missing" 'missing' $model --load "$W/missing" --eval
refused "weights that are missing, of a run that counts" "--load $W/missing: No such file" $model \
    --load "$W/missing" --save-plan-model "$W/none.model"
# Plans are for as many ids as the data has: 1 or 8 in a bag.
for ids in 1 8; do
    awk -v n=$ids 'BEGIN { for (i = 0; i < 512; i++) { line = i % 2; for (f = 0; f < 2; f++)
        for (k = 0; k < n; k++) line = line " " f ":" (i * 7 + k) % 50 ":1"; print line } }' \
        >"$W/bags.ffm"
    $D --data "$W/bags.ffm" --format libffm --model fm --rows 100 --batch 16384 --ranks 2 \
        --plan tw --show-plan >"$W/plan_of_$ids" 2>"$W/err"
done
if [ "$(sed -n 's/.* is predicted to take \([0-9.]*\) ms.*/\1/p' "$W"/plan_of_[18] |
    awk 'NR == 1 { one = $1 } END { print (NR == 2 && $1 > 2 * one) }')" = 1 ]; then pass; else
    fail "plans of 1 and 8 ids: $(head -1 -q "$W"/plan_of_[18]) $(cat "$W/err")"; fi
refused "weights that are a folder" "$W" $model --load "$W" --eval

# A full disk (files limited in size): a message, and the earlier checkpoint still loads.
first=$(digest $model --repro-shards 8 --checkpoint "$W/full")
if [ -n "$first" ]; then
    (
        ulimit -f 20
        $D $model --epochs 2 --repro-shards 8 --checkpoint "$W/full" --resume --every 20 >"$W/out" \
            2>"$W/err"
        echo $? >"$W/status" || true
    )
    if [ "$(cat "$W/status")" = 1 ] && grep -q "$W/full" "$W/err"; then
        pass
    else
        fail "a full disk: status $(cat "$W/status"): $(tail -1 "$W/err")"
    fi
    same "after a full disk" \
        "$(digest $model --repro-shards 8 --checkpoint "$W/full" --eval --resume)" "$first"
fi
if [ -w /dev/full ]; then
    refused "log on a full disk" '/dev/full' $model --log /dev/full
    refused "report on a full disk" '/dev/full' $model --report /dev/full
    refused "predictions on a full disk" '/dev/full' $model --predict /dev/full
fi

sed 's/positive=[^ ]*/positive=nosuch/' examples/data/adult/adult.columns >"$W/typo.columns"
refused "a positive= that no label is" "'nosuch', as positive= asks: there are '<=50K.', '>50K.'" \
    --data examples/data/adult/adult.test --format delimited --columns "$W/typo.columns"

# As many words, but others.
printf 'label label\nage dense\ncity category\n' >"$W/cities.columns"
for i in 1 2 3 4 5 6 7 8; do printf '1,2,a\n0,3,b\n'; done >"$W/cities.csv"
sed 's/b/c/' "$W/cities.csv" >"$W/towns.csv"
cities="--columns $W/cities.columns --dim 4 --bottom 1-4 --top 4-1 --batch 8 --checkpoint $W/cities"
$D --data "$W/cities.csv" $cities >"$W/out" 2>"$W/err" || fail "words: $(cat "$W/err")"
refused "other words" "holds other words than the schema's: give the --data and --columns of its" \
    --data "$W/towns.csv" $cities --resume

# Samples without labels have predictions and no figures, also beside validation data that has them.
adult=examples/data/adult/adult
head -600 $adult.test | cut -d, -f1-14 >"$W/unlabeled.csv"
head -400 $adult.data >"$W/adult.csv"
$D --format adult --columns $adult.columns --data "$W/adult.csv" --valid "$W/adult.csv" \
    --test "$W/unlabeled.csv" --predict "$W/predicted" --dim 8 --bottom 5-16-8 --top 16-1 \
    --batch 50 >"$W/run" 2>"$W/err"
if grep -q '^epoch 1/1 .* valid auc=0' "$W/run" && grep -q '^test samples/s=' "$W/run" &&
    grep -q 'no figures: all labels of the test data are alike, or it has none' "$W/err" &&
    [ "$(wc -l <"$W/predicted")" = 600 ] && ! grep -q nan "$W/run"; then
    pass
else
    fail "samples without labels: $(cat "$W/run" "$W/err")"
fi

# A file of words alone, as spreadsheets write it, with names and quotes: the same on ranks, and
# what it learns is more than the share of labels.
awk 'BEGIN { srand(1); printf "\357\273\277\"Order Id\";\"Job #2\";Outcome\r\n"
    for (i = 0; i < 3000; i++) { j = int(5 * rand())
        printf "\"%d\";\"job; \"\"%d\"\"\";%s\r\n", i, j, rand() < j / 5 ? "won" : "lost" } }' \
    >"$W/words.csv"
printf 'header\nquote "\ndelimiter ;\n"Job #2" category\nOutcome label positive=won\n' \
    >"$W/words.columns"
words="--format delimited --columns $W/words.columns --data $W/words.csv --dim 4 --top 8-1
    --batch 64 --epochs 2 --lr 0.1 --repro-shards 2"
$D $words --test "$W/words.csv" --checkpoint "$W/words" >"$W/out" 2>&1
auc=$(sed -n 's/.*auc=\([0-9.]*\).*/\1/p' "$W/out" | tail -1)
if awk -v auc="$auc" 'BEGIN { exit !(auc > 0.75) }'; then
    pass
else
    fail "data without dense numbers: AUC '$auc'"
fi
first_words=$(sed -n 's/^state //p' "$W/out")
same "without dense numbers, 2 ranks" "$(digest $words --ranks 2 --plan rw)" "$first_words"
same "without dense numbers, evaluated" \
    "$(digest $words --test "$W/words.csv" --checkpoint "$W/words" --eval --resume)" "$first_words"
# Words alone and numbers alone, of the models that have the one or the other.
sed 's/"Job #2" category/&\n"Order Id" category/' "$W/words.columns" >"$W/two.columns"
alone="--format delimited --data $W/words.csv --batch 64 --repro-shards 2"
for kind in lr 'fm --dim 5' ffm 'deepfm --top 8-1'; do
    thin || continue
    same "$kind without dense numbers, 2 ranks" \
        "$(digest $alone --columns "$W/two.columns" --model $kind --ranks 2 --plan rw)" \
        "$(digest $alone --columns "$W/two.columns" --model $kind)"
done
# Numbers alone: a DLRM without tables.
sed 's/"Job #2" category/"Order Id" dense shift=1500 scale=0.001/' "$W/words.columns" \
    >"$W/numbers.columns"
numbers="--format delimited --columns $W/numbers.columns ${words#*words.columns} --bottom 1-4"
alone="$alone --columns $W/numbers.columns"
same "lr without sparse features" "$(digest $alone --model lr --ranks 2 --dense-shard full)" \
    "$(digest $alone --model lr)"
refused "wukong without sparse features" \
    '--model wukong pairs sparse features, and this data has none' $alone --model wukong
refused "fm without sparse features" \
    '--model fm pairs sparse features, and this data has none' $alone --model fm
first_numbers=$(digest $numbers)
for how in '--ranks 2 --pipeline off' '--ranks 2 --plan rw --dense-shard full'; do
    same "without sparse features, $how" "$(digest $numbers $how)" "$first_numbers"
done
first_numbers=$(digest $numbers --micro-batches 2 --checkpoint "$W/numbers")
same "without sparse features, evaluated" \
    "$(digest $numbers --micro-batches 2 --test "$W/words.csv" --checkpoint "$W/numbers" --eval \
        --resume --ranks 2)" "$first_numbers"
for i in 0 1 2 3 4 5 6 7; do echo "0,$i,w$i"; done >"$W/zeros.csv"
printf 'y label\nx dense\nc category\n' >"$W/zeros.columns"
$D --data "$W/zeros.csv" --format delimited --columns "$W/zeros.columns" >"$W/out" 2>"$W/err"
if grep -q 'all labels of the training data are 0' "$W/err"; then
    pass
else
    fail "labels all alike: no warning"
fi

printf 'y label\nx dense\nc category\nw sample-weight\n' >"$W/zeros.columns"
printf '1,0.5,a,0\n0,0.25,b,0\n' >"$W/zeros.csv"
$D --data "$W/zeros.csv" --test "$W/zeros.csv" --columns "$W/zeros.columns" >"$W/out" 2>"$W/err"
if grep -q "all weights of the training data's samples are 0" "$W/err" &&
    grep -q 'no figures: .* or all weights of samples are 0' "$W/err"; then
    pass
else
    fail "weights of 0, without --format: $(cat "$W/err")"
fi
refused "a csv as criteo" '1 field, expected 40 (criteo: .*, tab-separated)' --format criteo \
    --data "$W/zeros.csv"
refused "a csv of no format" 'zeros.csv is read as --format criteo: it begins like no format' \
    --data "$W/zeros.csv"

# ---- options ----

$D --help >"$W/out" 2>&1 && grep -q -- --repro-shards "$W/out" && pass || fail "--help"
options_tested dlrm "$W/out"
refused "no data" 'data' --epochs 1
refused "unknown option" '--nosuch: no such option (--help lists them)' $model --nosuch
refused "an option misspelt" '--epoch: no such option; did you mean --epochs' $model --epoch 2
refused "an option misspelt" 'did you mean --repro-shards' $model --repo-shard 2
$D $model --plan rw --ranks 1 >"$W/out" 2>"$W/err"
if grep -q 'note: --plan rw: one rank has all tables; --ranks gives more' "$W/err"; then pass; else
    fail "--plan on one rank: $(cat "$W/err")"; fi
refused "a value is missing" 'epochs' $model --epochs
refused "not a number" 'epochs' $model --epochs two
refused "negative" 'batch' $model --batch -5
refused "batch 0" 'batch' $model --batch 0
refused "dim 0" 'dim' $model --dim 0
refused "lr nan" 'lr' $model --lr nan
refused "lr inf" 'lr' $model --lr inf
refused "optimizer" 'optimizer' $model --optimizer nosuch
refused "l1 without ftrl" '--l1 is for --optimizer ftrl' $model --l1 0.1
refused "l2 without ftrl" '--l2 is for --optimizer ftrl' $model --l2 0.1
refused "predictions of nothing" '--predict needs --test' --data a --predict "$W/none"
refused "weight decay of ftrl" 'has --l2 instead' $model --optimizer ftrl --weight-decay 0.1
refused "dtype" '--dtype f16' $model --dtype f16
refused "dtype of rows" 'rows-dtype' $model --rows-dtype f8
refused "schedule" 'schedule' $model --schedule nosuch
refused "format" 'format' --data "$W/plain_file" --format nosuch
refused "format of synthetic data" '--format nosuch: not criteo, adult' $model --format nosuch
for format in npy criteo auto; do
    refused "$format without effect" "--synthetic generates .* $format: leave out --format" $model \
        --format $format
done
refused "rows without effect" '--rows: --format adult knows its rows' --data \
    "$W/plain_file" --format adult --rows 5
refused "two sources" 'leave out --data' $model --data "$W/plain_file"
refused "a name that is empty" "--data '': a name is empty" --data ''
refused "one of two names is empty" "--test x,,y: a name is empty" --data "$W/plain_file" --test \
    x,,y
refused "too many files" '--data: 65 files, at most 64' --data "$(seq 64 | tr '\n' ',')x"
$D $model --batch 60 --epochs 0 >"$W/out" 2>"$W/err"
if [ "$(grep -c 'warning: --batch is given twice: the last one counts' "$W/err")" = 1 ]; then \
    pass; else fail "an option given twice: $(cat "$W/err")"; fi
if [ -w /dev/full ]; then
    if $D --help >/dev/full 2>"$W/err"; then fail "--help on a full disk"; else pass; fi
fi
# Closed standard output: the log is no place for what is printed.
$D $model --log "$W/closed.jsonl" >&- 2>&- <&-
if [ -s "$W/closed.jsonl" ] && ! grep -qv '^{' "$W/closed.jsonl"; then
    pass
else
    fail "closed standard output: $(head -3 "$W/closed.jsonl")"
fi
# A pipe as the log is opened once: its reader gets all lines.
mkfifo "$W/pipe"
timeout 900 cat "$W/pipe" >"$W/piped" &
timeout 900 $D $model --log "$W/pipe" >"$W/out" 2>"$W/err"
wait $!
same "lines of a pipe" "$(grep -c . "$W/piped")" "$(grep -c . "$W/closed.jsonl")"
refused "bottom of another input" 'bottom' $model --bottom 12-24-8
refused "bottom of another output" 'bottom' $model --bottom 13-24-9
refused "bottom that is no list" 'bottom' $model --bottom 13-x-8
refused "top of two outputs" 'top' $model --top 24-2
refused "fewer shards than ranks" 'repro-shards 3: must be at least the 4 ranks' $model \
    --repro-shards 3 --ranks 4
refused "no rank" 'ranks' $model --ranks 0
refused "nodes that do not divide" 'nodes' $model --ranks 4 --nodes 3
refused "pipeline" 'pipeline' $model --pipeline maybe
refused "dense-shard" 'dense-shard some: not none, zero1, zero2 or full' $model --dense-shard some
refused "wire" 'wire\|f33' $model --wire-forward f33
refused "a plan that is no file" 'nosuch' $model --plan nosuch
refused "bad-lines" 'bad-lines' $model --bad-lines maybe
refused "resume without a folder" 'checkpoint' $model --resume
refused "threads" 'threads' $model --threads 100000
refused "threads beyond 32 bits" 'threads' $model --threads 4294967297
refused "log-every 0" 'log-every' $model --log-every 0
refused "--batch -1" '--batch -1: not a whole number from 1 to' $model --batch -1
refused "--synthetic 0" '--synthetic must be at least 1' --synthetic 0
refused "a log nowhere" "--log: $W/none/log: No such file" $model --log "$W/none/log"
refused "a plan nowhere" "--save-plan: $W/none/plan: No such file" $model --save-plan "$W/none/plan"
refused "replicas of one rank" 'must divide the 1 rank into' $model --replicas 2
$D $model --window 9 >"$W/out" 2>"$W/err"
if grep -q '^note: --window: its figures are for --log' "$W/err"; then pass; else
    fail "--window for nothing: $(cat "$W/err")"; fi
# What memory has no room for is refused before it is taken, and before the training.
if [ -z "$SANITIZER" ]; then # whose allocators end a program
    (ulimit -v 4000000 && $D $model --threads 1 --auc-capacity 4294967296) >"$W/out" 2>"$W/err"
    if grep -q '^dlrm: --auc-capacity 4294967296: .* no memory' "$W/err" &&
        ! grep -q 'train ' "$W/err"; then pass; else fail "--auc-capacity: $(cat "$W/err")"; fi
fi
if have python3 && [ -z "$SANITIZER" ]; then
    python3 -c 'import resource, subprocess, sys
run = subprocess.run(sys.argv[1:], capture_output=True, text=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
sys.exit(peak > 1e6 or "C1'"'"', has 100000000000 rows: --rows N" not in run.stderr)' \
        $D $model --threads 1 --rows 100000000000 && pass || fail "rows of no memory take it"
fi
refused "an AUC of too many" '^dlrm: --auc-capacity 4294967297' $model --auc-capacity 4294967297
refused "standard input twice" 'epochs' --data - --epochs 2
refused "repro-shards" 'shards' $model --repro-shards 5000
refused "a huge dimension" 'dim' $model --dim 4000000000 --bottom 13-4000000000
NEO_ISA=nosuch refused "NEO_ISA" 'nosuch' $model

# ---- files: npy, Criteo lines, standard input ----

make_npy=$B/tests/data/make_npy
"$make_npy" "$W/day_0_" 700 && "$make_npy" "$W/day_1_" 200 || fail "make_npy"
npy="--format npy --batch 64 --dim 8 --bottom 13-24-8 --top 24-1 --seed 3 --log-every 10"
a=$(digest --data "$W/day_0_" --test "$W/day_1_" $npy --threads 1)
same "npy" "$a" "$(digest --data "$W/day_0_" --test "$W/day_1_" $npy --threads 3)"
lines=$W/day_0_lines.tsv
criteo="--format criteo --batch 64 $small"
whole=$(digest --data "$lines" $criteo --threads 1)
[ -n "$SANITIZER" ] || # whose allocators end a program
    refused "tables larger than any memory" 'no memory for .* --rows N .* --tier FILE' \
        --data "$lines" --format criteo --rows 100000000 --dim 100000
same "criteo, 3 threads" "$(digest --data "$lines" $criteo --threads 3)" "$whole"
same "criteo, standard input" "$(digest --data - $criteo <"$lines")" "$whole"
same "criteo, a pipe" "$(cat "$lines" | digest --data - $criteo)" "$whole"
of_four=$(digest --data "$lines" $criteo --repro-shards 4)
for ranks in 2 4; do
    v="--repro-shards 4 --ranks $ranks"
    same "criteo, $ranks ranks" "$(digest --data "$lines" $criteo $v)" "$of_four"
    same "standard input, $ranks ranks" \
        "$(state_of timeout 900 $D --data - $criteo $v <"$lines")" "$of_four"
    same "a pipe, $ranks ranks" "$(cat "$lines" | state_of timeout 900 $D --data - $criteo $v)" \
        "$of_four"
done
head -333 "$lines" >"$W/part1.tsv"
tail -n +334 "$lines" >"$W/part2.tsv"
some="--data $lines $criteo --columns I1-I3,I13,C1,C5-C7,C26 --bottom 4-24-8"
same "columns of criteo, 3 ranks" "$(digest $some --repro-shards 4)" \
    "$(digest $some --repro-shards 4 --ranks 3 --checkpoint "$W/some")"
refused "other columns of criteo" "columns is 'I1,I2,I3,I13,C1,C5,C6,C7,C26' there, 'I1,I2" \
    $some --repro-shards 4 --checkpoint "$W/some" --resume --columns I1-I4,C1,C5-C7,C26
same "columns of criteo in another order" "$(digest $some --repro-shards 4 --checkpoint "$W/some" \
    --resume --columns C26,C5-C7,C1,I13,I1-I3)" "$(digest $some --repro-shards 4)"
refused "names of columns" \
    "^dlrm: --columns: expected names as I1-I5,C1,C14 (I1 to I13, C1 to C26), found 'C27'" \
    --data "$lines" $criteo --columns I1,C27
same "criteo, two files" "$(digest --data "$W/part1.tsv,$W/part2.tsv" $criteo)" "$whole"
printf '%s' "$(cat "$lines")" >"$W/no_newline.tsv"
same "criteo, no newline at the end" "$(digest --data "$W/no_newline.tsv" $criteo)" "$whole"
sed 's/$/\r/' "$lines" >"$W/crlf.tsv"
same "criteo, CR LF" "$(digest --data "$W/crlf.tsv" $criteo)" "$whole"
# Enough text for an index, by which each rank parses its own part.
i=0
while [ $i -lt 25 ]; do
    cat "$lines"
    i=$((i + 1))
done >"$W/much.tsv"
much="--data $W/much.tsv --format criteo --batch 512 $small --repro-shards 8"
whole=$(digest $much)
for ranks in 2 3 4; do
    part || continue
    same "much text, $ranks ranks" "$(digest $much --ranks $ranks --plan rw)" "$whole"
done
same "much text, saved by 2 ranks" "$(digest $much --ranks 2 --checkpoint "$W/much")" "$whole"
[ -s "$W/much.tsv.neoindex" ] && pass || fail "no index beside the text"
same "much text, resumed by 4" "$(digest $much --epochs 2)" \
    "$(digest $much --epochs 2 --ranks 4 --checkpoint "$W/much" --resume)"
count=$(wc -l <"$W/much.tsv")
printf '1\tno line\n' >>"$W/much.tsv"
refused "a bad line of another rank" "rank 3: .*much.tsv:$((count + 1)):1: 2 fields, expected 40" \
    $much --ranks 4

refused "missing file" 'missing.tsv' --data "$W/missing.tsv" $criteo
for format in auto criteo libsvm libffm npy npz binary; do
    refused "a directory as $format" "$W is a directory: name its files" --data "$W" \
        --format $format --model lr
done
: >"$W/empty.tsv"
refused "empty file" 'empty.tsv' --data "$W/empty.tsv" $criteo
refused "empty standard input" 'standard input' --data - $criteo
refused "one of two is missing" 'missing.tsv' --data "$lines,$W/missing.tsv" $criteo
for more in --test --valid; do
    refused "missing file of $more" 'missing.tsv' --data "$lines" $more "$W/missing.tsv" $criteo
    refused "a directory of $more" "$W: cannot open: is a directory" --data "$lines" $more "$W" \
        $criteo
    if grep -q 'train ' "$W/err"; then
        fail "a bad path of $more is found after training"
    else
        pass
    fi
    head -c 20 "$lines" >"$W/cut.tsv"
    refused "a bad file of $more" 'cut.tsv:1:' --data "$lines" $more "$W/cut.tsv" $criteo
    if grep -q 'train ' "$W/err"; then fail "a bad file of $more is found after training"; else \
        pass; fi
done
ln -f "$lines" "$W/linked.tsv"
refused "a log over the data" 'read and written' --data "$lines" --log \
    "$W/../dlrm/day_0_lines.tsv" $criteo
refused "a report over one of two files" 'read and written' --data "$W/empty.tsv,$lines" --report \
    "$W/linked.tsv" $criteo
cp "$lines" "$W/a,b.columns"
refused "a report over a description whose name has a comma" 'read and written' --data "$lines" \
    --columns "$W/a,b.columns" --format delimited --report "$W/a,b.columns"
refused "a profile over the data" 'read and written' --data "$lines" --save-profile \
    "$W/linked.tsv" $criteo
refused "a report over a profile" 'read and written' $model --hot-rows 4 --ranks 2 \
    --profile "$W/a,b.columns" --report "$W/a,b.columns"
refused "a profile nowhere" '--save-profile: ' $model --save-profile "$W/none/profile"
refused "bytes in MiB, cut off" 'memory 64Mi: ' $model --tier "$W/tier" --memory 64Mi
refused "one file for two" 'written twice' --data "$lines" --log "$W/new" --report "$W/./new" \
    $criteo
refused "missing npy" 'missing' --data "$W/missing_" $npy
refused "text as npy" 'plain_file is no array, and arrays are several files: --data is what' \
    --data "$W/plain_file" $npy
refused "a file of npy" 'is one of several files: --data is what their names begin with' \
    --data "$W/day_0_dense.npy" $npy
# Words that no data can make right are refused before a pass over the data, which is bad here.
printf 'y label\nx dense\nc category\n' >"$W/late.columns"
printf '1,2,a\nbad\n' >"$W/late.csv"
printf 'x dense\ny dense\nc skip\n' >"$W/none.columns"
refused "no label" 'none.columns: no column is a label, as in: click label' --data "$W/late.csv" \
    --columns "$W/none.columns"
while read -r said options; do
    refused "$options, before the data" "^dlrm: --$said" --data "$W/late.csv" --test \
        "$W/late.csv" --columns "$W/late.columns" $options
done <<END
optimizer --optimizer nosuch
rows-dtype --rows-dtype f8
wire-backward --wire-backward i3
dense-shard --dense-shard nosuch
schedule --schedule nosuch
plan --plan nosuch
group --group nosuch
cross --model dcnv2 --cross 3y4
wukong --model wukong --wukong 2
bottom --bottom 1-x-16
bottom --bottom 1-16-8
top --top 16,1
cluster --cluster nosuch
profile --tier nosuch --memory 1M --profile nosuch
END

# line 100 becomes bad in one way each; the message has file:line:column.
sed 100d "$lines" >"$W/good.tsv"
good=$(digest --data "$W/good.tsv" $criteo)
bad() { # LABEL SCRIPT COLUMN
    awk -F '\t' -v OFS='\t' "NR == 100 { $2 } { print }" "$lines" >"$W/bad.tsv"
    refused "$1" "bad.tsv:100:$3" --data "$W/bad.tsv" $criteo
    thin || return
    same "$1, skipped" "$(digest --data "$W/bad.tsv" $criteo --bad-lines skip)" "$good"
    if grep -q '\b1 bad line' "$W/err"; then
        pass
    else
        fail "$1: the skipped line is not counted: $(tail -2 "$W/err")"
    fi
}
bad "a field too many" '$0 = $0 OFS "68fd1e64"' '[0-9]'
bad "a field too few" 'NF = NF - 1' '[0-9]'
bad "half a line" '$0 = substr($0, 1, 20)' '[0-9]'
bad "a word for a number" '$3 = "abc"' '[0-9]'
bad "a number out of range" '$3 = "99999999999999999999999"' '[0-9]'
bad "a label that is none" '$1 = "7"' '1'
bad "an empty label" '$1 = ""' '1'
bad "a word that is not hexadecimal" '$20 = "xyz!"' '[0-9]'
# On many ranks: one message, said once, and nobody waits for another.
many="$criteo --ranks 4 --plan rw"
once() { # LABEL TEXT: the last run's stderr has TEXT exactly once
    if [ "$(grep -c "$2" "$W/err")" = 1 ]; then
        pass
    else
        fail "$1: not said once: $(cat "$W/err")"
    fi
}
D_alone=$D
D="timeout 900 $D"
refused "a bad line on 4 ranks" 'bad.tsv:100:' --data "$W/bad.tsv" $many
once "a bad line on 4 ranks" 'bad.tsv:100:'
$D --data - $many <"$W/bad.tsv" >"$W/out" 2>"$W/err"
same "a bad line of standard input on 4 ranks" "$?" 1
once "a bad line of standard input on 4 ranks" 'standard input:100:'
good=$(digest --data "$W/good.tsv" $many)
same "it is skipped on 4 ranks" "$(digest --data "$W/bad.tsv" $many --bad-lines skip)" "$good"
once "it is skipped on 4 ranks" 'warning: skipped: .*bad.tsv:100:'
once "it is skipped on 4 ranks" 'skipped 1 bad line'
refused "a missing file on 4 ranks" 'missing.tsv' --data "$W/missing.tsv" $many
once "a missing file on 4 ranks" 'missing.tsv'
refused "an option on 4 ranks" 'nosuch' $wide --ranks 4 --top nosuch
once "an option on 4 ranks" 'nosuch'
refused "standard input that is empty, on 4 ranks" 'standard input' --data - $many
if [ -w /dev/full ]; then # the disk of rank 0 alone is full
    refused "log on a full disk, 4 ranks" '/dev/full' $wide --ranks 4 --log /dev/full
    once "log on a full disk, 4 ranks" '/dev/full'
    refused "predictions on a full disk, 4 ranks" '/dev/full' $wide --ranks 4 --predict /dev/full
    $D $wide --ranks 4 >/dev/full 2>"$W/err"
    same "standard output on a full disk, 4 ranks" "$?" 1
fi
D=$D_alone
head -c 20 "$lines" >"$W/cut.tsv"
refused "a cut file" 'cut.tsv:1:' --data "$W/cut.tsv" $criteo
head -c 100000 /dev/urandom >"$W/noise.tsv"
refused "noise" 'noise.tsv:[0-9]*:' --data "$W/noise.tsv" $criteo
refused "nothing but bad lines" 'cut.tsv' --data "$W/cut.tsv" $criteo --bad-lines skip

cp "$W/day_0_dense.npy" "$W/cut_dense.npy"
cp "$W/day_0_sparse.npy" "$W/cut_sparse.npy"
cp "$W/day_0_labels.npy" "$W/cut_labels.npy"
head -c 3000 "$W/day_0_sparse.npy" >"$W/cut_sparse.npy"
refused "a cut npy" 'cut_sparse.npy' --data "$W/cut_" $npy
head -c 40 "$W/day_0_sparse.npy" >"$W/cut_sparse.npy"
refused "a cut npy header" 'cut_sparse.npy' --data "$W/cut_" $npy
cp "$W/day_1_sparse.npy" "$W/cut_sparse.npy"
refused "npy of another length" 'cut_' --data "$W/cut_" $npy
cp "$W/plain_file" "$W/cut_sparse.npy"
refused "npy that is text" 'cut_sparse.npy' --data "$W/cut_" $npy
refused "npy as weights" 'day_0_dense.npy: byte 0: not a safetensors file' $model \
    --load "$W/day_0_dense.npy"

# ---- other formats of the same samples: records, libsvm, libffm, an archive; found by a look ----

train="--batch 64 --dim 8 --top 24-1 --seed 3"
records="$train --bottom 13-24-8"
# Records with TorchRec's dense numbers and ids are its arrays.
hot=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
npy_state=$(digest --data "$W/day_0_" --format npy $records)
same "raw" "$(digest --data "$W/day_0_raw.bin" --format raw --hot $hot $records)" "$npy_state"
npy_rows=$(digest --data "$W/day_0_" --format npy --rows 50 $records)
same "npy, raw: ids modulo rows" "$npy_rows" \
    "$(digest --data "$W/day_0_raw.bin" --format raw --hot $hot --rows 50 $records)"
cp "$W/day_0_labels.npy" "$W/zip_labels.npy"
cp "$W/day_0_dense.npy" "$W/zip_dense.npy"
head -c 5000 /dev/zero >>"$W/zip_dense.npy"
cp tests/golden/multi_hot.npz "$W/zip_sparse_multi_hot.npz"
refused "an archive beside other arrays" 'zip_dense.npy: byte ' --data "$W/zip_" --format npz \
    $records
cp "$W/day_0_dense.npy" "$W/zip_dense.npy"
refused "an archive of other length" 'have 700, 5 and 700 rows' --data "$W/zip_" --format npz \
    $records
"$make_npy" "$W/zip_" 5
rm "$W/zip_sparse.npy"
head -c 800 tests/golden/multi_hot.npz >"$W/part_sparse_multi_hot.npz"
cp "$W/zip_dense.npy" "$W/part_dense.npy"
cp "$W/zip_labels.npy" "$W/part_labels.npy"
refused "a cut archive" 'byte 800: no directory of a zip' --data "$W/part_" --format npz $records
# looked LABEL FORMAT ARGUMENTS...: by a look the same run as by name, which is said. One thread
# looks.
looked() {
    thin || return
    label=$1 name=$2
    shift 2
    want=$(digest --format $name "$@" --repro-shards 4)
    same "$label on 2 ranks, 3 threads" \
        "$(digest --format $name "$@" --ranks 2 --repro-shards 4 --threads 3)" "$want"
    same "$label by a look" "$(digest --format auto "$@" --repro-shards 4)" "$want"
    if [ -n "$want" ] && [ "$(grep -c -- "^--format $name, by a look at " "$W/err")" = 1 ]; then
        pass
    else
        fail "$label: a look says $(grep by "$W/err") $(tail -1 "$W/err")"
    fi
}
looked libsvm libsvm --data "$W/day_0_lines.svm" --test "$W/day_0_lines.svm" $train
looked "libsvm, modulo" libsvm --data "$W/day_0_lines.svm" --rows 50 $train
looked libffm libffm --data "$W/day_0_lines.ffm" $train
ffm="--data $W/day_0_lines.ffm --format libffm --optimizer ftrl --batch 64 --repro-shards 2"
for kind in fm ffm lr wukong; do
    thin || continue
    same "libffm, $kind on 2 ranks" "$(digest $ffm --model $kind --ranks 2 --plan rw)" \
        "$(digest $ffm --model $kind)"
done
looked binary binary --data "$W/day_0_int.bin" $records
looked raw raw --data "$W/day_0_raw.bin" --hot $hot $records
looked criteo criteo --data "$lines" $records
looked npy npy --data "$W/day_0_" $records
looked npz npz --data "$W/zip_" $records
looked "npz, modulo" npz --data "$W/zip_" --rows 3 $records
looked adult adult --data examples/data/adult/adult.test $train
looked delimited delimited --data examples/data/adult/adult.test --columns $adult.columns $train
{ printf ' \t# one 1:1\n'; sed '1s/$/ #1:1/; 2s/$/#1:1/' "$W/day_0_lines.svm"; } >"$W/comments.svm"
same "libsvm with comments, by a look" "$(digest --format auto --data "$W/comments.svm" $train)" \
    "$(digest --format libsvm --data "$W/day_0_lines.svm" $train)"
same "libsvm, standard input" \
    "$(digest --format libsvm --data - --rows 50 $train <"$W/day_0_lines.svm")" \
    "$(digest --format libsvm --data "$W/day_0_lines.svm" --rows 50 $train)"
$D --data "$W/day_0_raw.bin" --format raw --hot 3,23 --rows 50 --checkpoint "$W/hot_of" \
    >"$W/out" 2>"$W/err"
refused "another --hot" "hot is '3,23' there, '23,3' here" --data "$W/day_0_raw.bin" \
    --format raw --hot 23,3 --rows 50 --checkpoint "$W/hot_of" --resume --epochs 2
refused "libsvm without a pass" "give --rows" --data - --format libsvm $train
refused "libffm without a pass" "the largest field is found by a pass" --data - --format libffm \
    --rows 5 $train
refused "a look at standard input" "is read once" --data - --format auto $train
refused "a look at nothing known" "begins like no format" --data "$W/plain_file" --format auto \
    $train
refused "--bottom of no dense numbers" 'beginning with 1 .this data has no dense numbers' \
    --data "$W/day_0_lines.svm" --format libsvm --bottom 13-16
refused "fm of one feature" "pairs features, not the ids of one" --data "$W/day_0_lines.svm" \
    --format libsvm --batch 16 --model fm
for look in 'compressed:\037\213\010\000ab' 'UTF-16 -t:\377\376a\000\n\000' \
    'UTF-16LE -t:a\000\t\000b\000\t\000c\000\n\000' \
    'UTF-16BE -t:\000a\000\t\000b\000\t\000c\000\n' \
    'of several files:\223NUMPYabc' 'unzip -p it:PK\003\004abc' 'zstdcat it:\050\265\057\375abc' \
    'no sample:'; do
    printf "${look#*:}" >"$W/looked_at"
    refused "a look at ${look%%:*}" "${look%%:*}" --data "$W/looked_at" --format auto $train
    refused "${look%%:*}, without --format" "${look%%:*}" --data "$W/looked_at" $train
done
echo "1 99999:1" >"$W/more.svm"
refused "an id of a test file only" 'more.svm:1:3: index 99999 is not in .* --rows N' \
    --data "$W/day_0_lines.svm" --test "$W/more.svm" --format libsvm $train
echo "1 1:1 99999999999999:1" >"$W/more.svm"
refused "an id that no table holds" 'more.svm:1:7: index 99999999999999 is not in .* --rows N' \
    --data "$W/more.svm" --format libsvm $train
echo "1 1:1:1 0:99999999999999:1" >"$W/more.ffm"
refused "an id of a field that no table holds" 'more.ffm:1:9: index 99999999999999 is not in' \
    --data "$W/more.ffm" --format libffm $train
same "that id modulo rows" "$(digest --data "$W/more.ffm" --format libffm --rows 10 $train)" \
    "$(echo "1 1:1:1 0:9:1" | tee "$W/less.ffm" >"$W/out" &&
        digest --data "$W/less.ffm" --format libffm --rows 10 $train)"
head -c 1234 "$W/day_0_int.bin" >"$W/cut.bin"
refused "a cut record" 'cut.bin: byte 1234: the file ends inside row 7' --data "$W/cut.bin" \
    --format binary $records
refused "raw without --hot" 'needs --hot' --data "$W/cut.bin" --format raw $records
refused "--hot 3,0" '--hot 3,0: not numbers' --data "$W/cut.bin" --format raw --hot 3,0 $records
for rows in '' '--rows 50'; do
    refused "--hot of other data $rows" 'ends inside row 1647 .* the ids of --hot 1,2$' \
        --data "$W/day_0_int.bin" --format raw --hot 1,2 $rows $records
    refused "--hot of half a row $rows" 'expected a label .* the ids of --hot 3,2,1$' \
        --data "$W/day_0_int.bin" --format raw --hot 3,2,1 $rows $records
done
cp "$W/day_0_int.bin" "$W/damaged.bin"
printf '\377\377\377\376' | dd of="$W/damaged.bin" bs=1 seek=924 conv=notrunc 2>"$W/log"
refused "a damaged id" 'damaged.bin: row 5, column 31 (feature 17): id 4278190079 .* --rows N' \
    --data "$W/damaged.bin" --format binary $records
same "that id modulo rows, of threads" \
    "$(digest --data "$W/damaged.bin" --format binary --rows 50 $records --threads 1)" \
    "$(digest --data "$W/damaged.bin" --format binary --rows 50 $records --threads 3)"
key="--data $W/damaged.bin --format binary --keys --key-rows 200 $records"
same "that id as a key" "$(digest $key)" "$(digest $key --rows 5000000000)"
printf '\377\377\377\163' | dd of="$W/damaged.bin" bs=1 seek=924 conv=notrunc 2>"$W/log"
[ -n "$SANITIZER" ] || # whose allocators end a program
    refused "a table of that id" "no memory for .* the largest, 'cat_17', has 1946157056 rows" \
        --data "$W/damaged.bin" --format binary --dim 100000
refused "--hot without effect" '--hot is for --format raw' $model --hot 3
refused "records of standard input" 'cannot come from standard input' --data - --format binary
awk 'NR == 100 { $3 = "5:x" } { print }' "$W/day_0_lines.svm" >"$W/bad.svm"
refused "a bad pair" 'bad.svm:100:' --data "$W/bad.svm" --format libsvm $train
sed 100d "$W/bad.svm" >"$W/good.svm"
same "a bad pair, skipped" "$(digest --data "$W/bad.svm" --format libsvm --bad-lines skip $train)" \
    "$(digest --data "$W/good.svm" --format libsvm $train)"

# ---- report and log ----

learn=2000 # samples, of which something is learned
[ -z "$SANITIZER" ] || learn=$samples
$D --synthetic $learn --batch 120 $small --report "$W/report.html" --log "$W/log.jsonl" \
    >"$W/run" 2>"$W/err" && pass || fail "report and log"
if grep -q '<svg' "$W/report.html" && grep -q 'viewport' "$W/report.html"; then
    pass
else
    fail "report: no curve"
fi
if grep -qE '(src|href)="?https?:|@import|<script' "$W/report.html"; then
    fail "report: needs a network"
else
    pass
fi
if have python3; then
    python3 - "$W/log.jsonl" <<'END' && pass || fail "log: not JSON lines"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows and any("loss" in r for r in rows) and any("test_auc" in r for r in rows)
for figure in ("test_pr_auc", "test_mse", "test_mae"):
    assert all(0 < r[figure] < 1 for r in rows if "test_auc" in r)
END
else
    skip "log: no python3 to read JSON with"
fi
if awk -v least=$least_auc \
    '/^best/ { split($3, a, "="); best = a[2] } /^test/ { split($2, a, "="); auc = a[2] }
    END { exit !(auc > least && auc <= best + 0.03) }' "$W/run"; then pass; else fail \
    "auc against the best: $(cat "$W/run")"; fi

# The log of MLPerf: one object a line, the keys that its checker counts, the same AUC as --log.
mllog="--synthetic 600 --batch 60 --model dcnv2 --epochs 2 --repro-shards 4"
$D $mllog --group C3 --window 90 --log-every 7 --ranks 2 --mllog "$W/mllog" \
    --log "$W/mllog.jsonl" >"$W/out" 2>&1
if have python3; then
    python3 - "$W/mllog" "$W/mllog.jsonl" <<'END' && pass || fail "mllog: $(tail -1 "$W/out")"
import json, sys
rows = [json.loads(line.removeprefix(":::MLLOG ")) for line in open(sys.argv[1])]
keys = [row["key"] for row in rows]
fields = {"namespace", "time_ms", "event_type", "key", "value", "metadata"}
assert all(set(row) == fields for row in rows)
assert keys[:2] == ["cache_clear", "init_start"] and keys[-1] == "run_stop"
once = "init_stop run_start submission_benchmark submission_org submission_division seed " \
       "submission_status submission_platform global_batch_size gradient_accumulation_steps " \
       "opt_name opt_base_learning_rate opt_weight_decay opt_learning_rate_warmup_steps " \
       "opt_learning_rate_decay_start_step opt_learning_rate_decay_steps opt_adagrad_epsilon " \
       "opt_adagrad_learning_rate_decay opt_adagrad_initial_accumulator_value train_samples " \
       "eval_samples"
assert all(keys.count(key) == 1 for key in once.split())
assert all(keys.count(key) == 2 for key in "epoch_start epoch_stop eval_start eval_stop".split())
value = {row["key"]: row["value"] for row in rows}
assert (value["train_samples"], value["eval_samples"]) == (600, 151)
assert rows[-1]["metadata"] == {"status": "success"}
log = [json.loads(line) for line in open(sys.argv[2])]
assert [row["value"] for row in rows if row["key"] == "eval_accuracy"] == \
       [row["test_auc"] for row in log if "test_auc" in row]
tracked = [row for row in rows if row["key"] == "tracked_stats"]
stats = [row["value"] for row in tracked if "epoch_num" in row["metadata"]]
others = "pr_auc logloss ne mse mae calibration accuracy gauc ndcg".split()
assert stats == [{key: row["test_" + key] for key in others} for row in log if "test_auc" in row]
assert len(stats) == 2
points = [row for row in log if "lr" in row]
assert [row["step"] for row in points] == [7, 14, 20]
for kind, others in ("window_", 8), ("lifetime_", 9):
    assert [(row["metadata"], row["value"]) for row in tracked if kind + "auc" in row["value"]] == \
           [({"step": row["step"]}, {key: row[key] for key in row if key.startswith(kind)})
            for row in points]
    assert all(len([key for key in row if key.startswith(kind)]) == others for row in points)
END
else
    skip "mllog: no python3 to read JSON with"
fi
# MLPerf's own checker, which `make peers` installs: PYTHON=build/peers/venv/bin/python.
if ${PYTHON:-python3} -c 'import mlperf_logging' 2>/dev/null; then
    if ${PYTHON:-python3} -m mlperf_logging.compliance_checker --usage training --ruleset 5.1.0 \
        --log_output "$W/checked" "$W/mllog" >"$W/out" 2>&1; then pass; else fail \
        "mllog: $(grep -v INFO "$W/out" | head -3)"; fi
else
    skip "mllog: no mlperf_logging to check it with"
fi
refused "mllog without training" 'the log of a training' $mllog --mllog "$W/mllog" --summary
refused "a directory as mllog" "$W: cannot be written" $mllog --mllog "$W"

# Published configurations, whose values other options override; evaluation within an epoch.
preset="--synthetic 240 --rows 40 --batch 30 --threads 1 --repro-shards 4"
for name in mlperf-dcnv2 criteo-kaggle; do
    part || continue
    $D --preset $name $preset --summary >"$W/out" 2>"$W/err"
    case $name in
        mlperf-dcnv2) layers='cross.*512 x 3456|C21 .*40 x 128|C6 .*3 x 128' count=3 ;;
        *) layers='bottom.2.weight .*256 x 512|C3 .*40 x 16|C9 .*3 x 16' count=3 ;;
    esac
    if [ "$(grep -cE "$layers" "$W/out")" -ge $count ]; then pass; else \
        fail "--preset $name --summary: $(cat "$W/out" "$W/err" | tail -3)"; fi
    light="--bottom 13-8 --dim 8 --top 8-1"
    [ $name = criteo-kaggle ] || light="$light --cross 2x5"
    base_preset=$(digest --preset $name $preset $light --eval-every 1)
    same "--preset $name, evaluated within" \
        "$(digest $preset $light --ranks 3 --eval-every 1/4 --mllog "$W/mllog" --preset $name)" \
        "$base_preset"
    same "--preset $name: evaluations" "$(grep -c eval_accuracy "$W/mllog")" 4
    case $name in mlperf-dcnv2) count=6 ;; *) count=61 ;; esac # of 240: 1/47, a quarter, and 1
    same "--preset $name: test samples" \
        "$(sed -n '/eval_samples/s/.*value": \([0-9]*\).*/\1/p' "$W/mllog")" $count
    same "--preset $name: when" "$(sed -n '/eval_accuracy/s/.*epoch_num": \([^}]*\).*/\1/p' \
        "$W/mllog" | tr '\n' ' ')" "0.25 0.5 0.75 1 "
done
refused "a preset that is none" '--preset dcn: there is none' $preset --preset dcn
refused "--preset, --rows of a format that has them" '--format adult knows its rows' \
    --preset criteo-kaggle --rows 5 --format adult --data x
refused "--eval-every 2" '--eval-every 2: not a part of an epoch' $preset --eval-every 2
refused "--eval-every 1/x" '--eval-every 1/x: not a part' $preset --eval-every 1/x
refused "--eval-every without data" '--eval-every needs --test' --data a --eval-every 1/2
if $D --help --preset dcn | grep -q -- '--top 1024-1024-512-256-1'; then pass; else
    fail "--help: presets"; fi

# A log that ends in half a line goes on with a whole one.
rm -rf "$W/half"
$D $model --checkpoint "$W/half" --log "$W/half.jsonl" >"$W/run" 2>"$W/err"
printf '{"step":9' >>"$W/half.jsonl"
$D $model --epochs 2 --checkpoint "$W/half" --log "$W/half.jsonl" --resume >"$W/run" 2>"$W/err"
if grep -q 'resumed_step' "$W/half.jsonl" && ! grep -qv '^{.*}$' "$W/half.jsonl"; then pass; else \
    fail "half a line in a log"; fi

rm -rf "$W"
finish programs/dlrm
