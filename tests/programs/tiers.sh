#!/bin/sh
# tiers.sh: dlrm --tier: rows in a file below a cache so small that they leave many times. The
# digest is that of the run without it, on any threads, ranks and plans, by any optimizer, and of a
# run that was killed and goes on with another cache; the file is gone at the end; peak memory stays
# below what the rows would take; what cannot be is refused in words.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/tiers
rm -rf "$W"
mkdir -p "$W"
D=$B/dlrm
if [ ! -x "$D" ]; then
    fail "$D is not built"
    finish programs/tiers
    exit
fi
samples=5000
[ -z "$SANITIZER" ] || samples=3000
model="--dim 16 --batch 64 --repro-shards 4 --seed 3"
base="$(given $samples 3000) --rows 3000 $model"
keyed="$(given $samples 9000) --rows 9000 $model"
tier="--tier $W/rows"

# with OPTIONS: and the samples and model that they are of.
with() {
    case $1 in
    --keys*) echo "$keyed $1" ;;
    *) echo "$base $1" ;;
    esac
}
# alike LABEL OPTIONS TIER-OPTIONS: the digest with a tier is that without.
alike() {
    part || return
    label=$1 options=$(with "$2")
    shift 2
    whole=$(state_of $D $options)
    same "$label" "$(state_of $D $options $tier "$@")" "$whole"
}

# ---- killed while it saves, and on with another cache, again and again; then with none ----
kills=6
[ -z "$NEO_FULL" ] || kills=50
[ -z "$SANITIZER" ] || kills=2
newest() { ls "$W/ckpt" 2>/dev/null | tail -1; }
# killed MEMORY OPTIONS: the digest at the end is that of a whole run. MEMORY: kilobytes, at least.
killed() {
    memory=$1 options=$(with "$2") saves="--checkpoint $W/ckpt --every 5 --resume"
    rm -rf "$W/ckpt" "$W/ckpt2"
    whole=$(state_of $D $options)
    for n in $(seq $kills); do
        was=$(newest) some=
        [ $((n % 3)) = 0 ] || some="--checkpoint-delta 4"
        [ $((n % 4)) -lt 2 ] || some="$some --checkpoint-async"
        [ $((n % 2)) = 0 ] || some="$some --prefetch 3"
        $D $options $saves $some $tier --memory $((memory + n % 7 * 300))K >"$W/out" 2>"$W/err" &
        pid=$!
        while kill -0 $pid 2>/dev/null && [ "$(newest)" = "$was" ]; do sleep 0.01; done
        sleep 0.0$((n % 8))
        if ! kill -9 $pid 2>/dev/null; then # it came to its end
            wait $pid
            same "killed, and at its end" "$(sed -n 's/^state //p' "$W/out")" "$whole"
            rm -rf "$W/ckpt"
        fi
        wait $pid 2>/dev/null
    done
    cp -r "$W/ckpt" "$W/ckpt2" 2>/dev/null
    same "resumed with another cache $2" \
        "$(state_of $D $options $saves $tier --memory $((memory + 2000))K --ranks 2)" "$whole"
    same "resumed without one $2" \
        "$(state_of $D $options --checkpoint "$W/ckpt2" --every 25 --resume)" "$whole"
}
keys="--keys --key-rows 800"
killed 2800 ""
killed 1800 "$keys"
if [ "$NEO_FULL" = 1 ]; then # the rest is in make test
    finish programs/tiers
    exit
fi

# ---- the digest of a run without a tier ----
alike "8M" "" --memory 8M
alike "a small cache, threads" "" --memory 3M --threads 3
alike "batches ahead" "--epochs 2" --memory 3M --prefetch 4
alike "many ahead, few rows of them" "--micro-batches 2" --memory 2200K --prefetch 64 --evict lfu
alike "two ranks" "" --memory 3M --ranks 2
alike "rows cut" "" --memory 3M --ranks 4 --plan rw
alike "batches ahead on ranks" "--epochs 2 --eval-every 0.4" --memory 3M --ranks 4 --plan rw \
    --prefetch 3
alike "many ahead on ranks" "--micro-batches 2 --wire-forward bf16" --memory 3M --ranks 2 \
    --prefetch 16
alike "columns cut" "--optimizer adam" --memory 4M --ranks 2 --plan cw
alike "no pipeline, rows of i8" "--rows-dtype i8 --optimizer adagrad" --memory 2M --pipeline off
alike "gradients that are kept" "--clip-norm 0.5 --micro-batches 2" --memory 3M --ranks 2
alike "finite" "--check-finite --optimizer ftrl" --memory 4M
alike "another model" "--model fm" --memory 3M --row-buckets 3
alike "keys" "$keys" --memory 2M
alike "keys, batches ahead" "$keys --evict lfu:20" --memory 1800K --prefetch 3
alike "keys, threads" "$keys --admit 2 --bloom --evict lfu:20" --memory 2M --threads 3
alike "keys of an age" "$keys --evict age:3" --memory 1800K
alike "keys, rows cut" "$keys" --memory 1300K --ranks 2 --plan rw --prefetch 4
alike "keys, columns cut" "$keys --optimizer adam --clip-norm 0.5" --memory 2M --ranks 2 --plan cw
alike "keys in rows of i8" "$keys --rows-dtype i8" --memory 1400K --pipeline off
if ls "$W" | grep -q '^rows'; then fail "tier files are left: $(ls "$W")"; else pass; fi

# ---- shares by how often rows are used: counted once, the same file again; no bit changes ----
try "--save-profile" $D $base --save-profile "$W/p"
try "--save-profile" $D $base --save-profile "$W/again" --threads 3
same "--save-profile: tables, rows, ids" "$(awk '/^table / { tables++; rows += $3
    for (i = 4; i <= NF; i++) ids += substr($i, index($i, ":") + 1) }
    END { print tables, rows, ids }' "$W/p")" "26 78000 $((26 * samples))"
if cmp -s "$W/p" "$W/again"; then pass; else fail "--save-profile: other counts again"; fi
alike "a profile" "" --memory 3M --profile "$W/p"
alike "a profile, lfu" "" --memory 3M --profile "$W/p" --evict lfu
alike "a profile, rows cut" "--plan rw" --memory 3M --profile "$W/p" --ranks 4 --evict lfu:100
if [ -z "$SANITIZER" ]; then
    $D $base $tier --memory 3M --profile "$W/p" --evict lfu --show-plan >"$W/out" 2>"$W/err"
    if grep -q 'memory has room for [0-9]* of its rows, which [0-9.]* % of its ids find' "$W/out" &&
        grep -qE '^tier: [0-9]+ ids, [0-9.]+ % .*\([0-9.]+ % once .*; [0-9]+ rows' "$W/out"; then
        pass
    else
        fail "--show-plan with a profile: $(grep '^tier' "$W/out") $(cat "$W/err")"
    fi
fi

# ---- differential checkpoints have the bytes of those without it ----
saves="--every 40 --checkpoint-delta 3 --checkpoint"
$D $base $saves "$W/plain" >"$W/out" 2>"$W/err"
grep -q base_step "$W"/plain/*/manifest.json || fail "none is differential: $(tail -1 "$W/err")"
for behind in "" --checkpoint-async; do
    $D $base $saves "$W/tiered$behind" $behind $tier --memory 3M >"$W/out" 2>"$W/err"
    if diff -r "$W/plain" "$W/tiered$behind" >"$W/out"; then
        pass
    else
        fail "$behind: differential checkpoints differ: $(head -3 "$W/out")"
    fi
done

# ---- peak memory: 8 times as many rows as the budget ----
# peak FILE COMMAND...: the digest, and in the file what it took, KiB.
peak() { state_of "$B/tests/programs/peak" "$@"; }
if [ -z "$SANITIZER" ]; then
    large="--synthetic 12000 --rows 40000 --dim 64 --batch 64" # 32M are full at the end
    whole=$(peak "$W/peak_whole" $D $large)
    # tables of a row each: what the process takes without tables
    peak "$W/peak_none" $D $large --rows 1 >"$W/out"
    for most in 13 32 64; do # 13M: a twentieth
        below=$(peak "$W/peak" $D $large $tier --memory ${most}M)
        same "${most}M of 266M" "$below" "$whole"
        saved=$(($(cat "$W/peak_whole") - $(cat "$W/peak")))
        if [ $saved -gt $((252000 - most * 1024)) ]; then pass; else
            fail "${most}M: a tier saves $saved KB"; fi
        more=$(($(cat "$W/peak") - $(cat "$W/peak_none")))
        if [ $more -le $((most * 1024 * 102 / 100)) ]; then pass; else
            fail "${most}M took $more KB"; fi
    done
    # On ranks copies of tables are within the memory of each, too.
    small="--synthetic 12000 --rows 12000 --dim 64 --batch 64 --ranks 2 --repro-shards 4"
    whole=$(state_of $D $small)
    peak "$W/peak_none" $D $small --rows 1 --plan tw >"$W/out"
    for most in 12 16; do
        below=$(peak "$W/peak" $D $small $tier --memory ${most}M)
        same "${most}M of each rank" "$below" "$whole"
        more=$(($(cat "$W/peak") - $(cat "$W/peak_none")))
        if [ $more -le $((2 * most * 1024 * 102 / 100)) ]; then pass; else
            fail "2 ranks of ${most}M took $more KB"; fi
    done
else
    skip "peak memory: a sanitizer has its own"
fi

# ---- the report: what steps find in memory, wait for and move, and the bytes, over time ----
$D $base $tier --memory 3M --log-every 10 --report "$W/with.html" >"$W/out" 2>"$W/err"
$D $base --log-every 10 --report "$W/without.html" >"$W/out" 2>>"$W/err"
for words in 'Ids whose rows the tier has in memory, rank 0, %' \
    'Rows that the tier moves in a step, rank 0' 'waited for' 'late ones of these' 'written' \
    'Tables of the tier, rank 0, MiB' 'below'; do
    if ! grep -q ">$words *<" "$W/with.html"; then fail "no '$words' in the report: $(cat "$W/err")"
    elif grep -q ">$words *<" "$W/without.html"; then fail "'$words' in the report without a tier"
    else pass
    fi
done
# Rows that an evaluation alone looks up, none of which is in memory, are in no point.
awk 'BEGIN { for (i = 0; i < 512; i++) print i % 2 " 0:" i % 50 ":1 1:" i % 7 ":1" }' >"$W/few.ffm"
awk 'BEGIN { for (i = 0; i < 512; i++) print i % 2 " 0:" 1000 + i ":1 1:7:1" }' >"$W/other.ffm"
$D --data "$W/few.ffm" --test "$W/other.ffm" --format libffm --model fm --rows 100000 $model $tier \
    --memory 3M --log-every 4 --eval-every 1/2 --report "$W/looks.html" >"$W/out" 2>"$W/err"
same "an evaluation between two points" "$(grep -o 'in memory <b>[0-9.]*' "$W/looks.html")" \
    "in memory <b>100"

# ---- refused ----
refused() {
    label=$1 says=$2
    shift 2
    if "$D" $base "$@" >"$W/out" 2>"$W/err"; then
        fail "$label: it ran"
    elif grep -q -- "$says" "$W/err"; then
        pass
    else
        fail "$label: $(tail -1 "$W/err")"
    fi
}
refused "no memory" "--tier needs --memory" $tier
refused "too little" "memory_bytes is 1024, a batch of these tables needs [0-9]*: give as many by \
--memory" $tier --memory 1K
least=$(sed -n 's/.*a batch of these tables needs \([0-9]*\).*/\1/p' "$W/err")
refused "a byte too little" "needs $least" $tier --memory $((least - 1))
if "$D" $base $tier --memory "$least" >"$W/out" 2>&1; then pass; else
    fail "what it needs is too little: $(tail -1 "$W/out")"; fi
for ranks in 2 3 4; do
    refused "too little on $ranks ranks" "rank 0: .*needs [0-9]*[^0-9]*: give as many by --memory" \
        $tier --memory 1K --ranks $ranks
    least=$(sed -n 's/.*a batch of these tables needs \([0-9]*\).*/\1/p' "$W/err")
    if "$D" $base $tier --memory "$least" --ranks $ranks >"$W/out" 2>&1; then pass; else
        fail "what it needs on $ranks ranks is too little: $(tail -1 "$W/out")"; fi
done
refused "copies" "needs [0-9]*; of table '[^']*', [0-9]* bytes, every rank has a copy: give as \
many by --memory" $tier --memory 1M --ranks 4 --plan dp
copied=$(sed -n 's/.* needs \([0-9]*\);.*/\1/p' "$W/err")
if "$D" $base $tier --memory "$copied" --ranks 4 --plan dp >"$W/out" 2>&1; then pass; else
    fail "what copies need is too little: $(tail -1 "$W/out")"; fi
refused "no device" "--tier -: .* --device cuda alone: name a file" --tier - --memory 8M
refused "no unit" "not a whole number" $tier --memory 8X
refused "no folder" "$W/none/rows: cannot open for writing" --tier "$W/none/rows" --memory 8M
refused "a policy" "--evict age:3: --tier has lru and lfu" $tier --memory 8M --evict age:3
refused "no tier" "--profile is of --tier" --profile "$W/p"
refused "nothing to read ahead" "--prefetch is of --tier" --prefetch 2
refused "ahead of nothing" "--prefetch above 1 needs --pipeline on" $tier --memory 8M --prefetch 2 \
    --pipeline off
refused "no profile" "--profile $W/none: cannot open" $tier --memory 8M --profile "$W/none"
refused "other rows" "the profile has no table '[^']*' of 3001 rows" $tier --memory 8M \
    --profile "$W/p" --rows 3001
refused "counts of keys" "--keys does not go with --save-profile" --keys --save-profile "$W/q"
refused "counts of ranks" "--save-profile counts on one rank" --ranks 2 --save-profile "$W/q"
echo precious >"$W/precious"
refused "somebody's file" "precious: not a tier's file" --tier "$W/precious" --memory 8M
same "somebody's file" "$(cat "$W/precious")" precious
printf 'neo ' >"$W/torn" # as of a run that was killed while it wrote the first bytes
if $D --synthetic 4000 --rows 2000 --tier "$W/torn" --memory 8M >"$W/log" 2>&1; then
    pass
else
    fail "a torn tier's file: $(tail -1 "$W/log")"
fi
finish programs/tiers
