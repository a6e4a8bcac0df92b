#!/bin/sh
# predict.sh: a model loaded from a checkpoint by its model.json predicts what the trainer's own
# evaluation (dlrm --predict) does, to the last bit: every --model, ways to give a sample, batch
# sizes, threads, instruction sets, rows, ranks that saved it; and what a model.json lacks, or has
# that is not known, is refused by name.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/predict
P=$B/tests/serve/predict
rm -rf "$W"
mkdir -p "$W"
adult=examples/data/adult
head -3000 $adult/adult.data >"$W/train.csv"
tail -500 $adult/adult.test >"$W/test.csv"
cp $adult/adult.columns "$W/adult.columns"
# Criteo lines: words that are missing, numbers that are negative or missing.
awk 'BEGIN { srand(7); for (i = 0; i < 1500; i++) { printf "%d", rand() < 0.3
    for (k = 0; k < 13; k++) printf "\t%s", rand() < 0.1 ? "" : int(rand() * 100 * k) - 3
    for (k = 0; k < 26; k++)
        if (rand() < 0.05) printf "\t"; else printf "\t%08x", rand() * 4e9
    print "" } }' >"$W/criteo.tsv"
awk 'BEGIN { srand(8); for (i = 0; i < 1500; i++) { printf "%d", rand() < 0.4
    for (k = 0; k < 9; k++) if (rand() < 0.8) printf " %d:%d:%.3g", k % 5, rand() * 50, rand() * 2
    print "" } }' >"$W/some.ffm"
sed 's/ [0-9]*:\([0-9]*:\)/ \1/g' "$W/some.ffm" >"$W/some.svm"
awk 'BEGIN { srand(9); print "b,y,tags,a"; for (i = 0; i < 1500; i++) { printf "%d,%d,", rand() * 9,
    rand() < 0.5; n = int(rand() * 5)
    for (k = 0; k < n; k++) printf "%sw%d:%.2g", k ? "|" : "", rand() * 20, rand() + 0.1
    printf ",%.3g\n", rand() * 10 } }' >"$W/lists.csv"
printf 'header\ny label\na dense log\nb bucket 2,4,6\ntags list sep=| weight=:\n' \
    >"$W/lists.columns"

# train NAME DATA OPTIONS...: a checkpoint, $W/NAME.ckpt, and its predictions, $W/NAME.expected
train() {
    name=$1 data=$2
    shift 2
    test=$data
    [ "$data" = "$W/train.csv" ] && test=$W/test.csv
    "$B/dlrm" --data "$data" --batch 100 --checkpoint "$W/$name.ckpt" "$@" >"$W/out" 2>"$W/err" &&
        "$B/dlrm" --test "$test" --batch 64 --checkpoint "$W/$name.ckpt" --eval \
            --predict "$W/$name.expected" "$@" >"$W/out" 2>"$W/err" ||
        fail "$name: dlrm: $(tail -2 "$W/err")"
    cp "$test" "$W/$name.lines"
    [ "$test" = "$W/lists.csv" ] && # in the order of the description, without the header
        awk -F, 'NR > 1 { print $2 "," $4 "," $1 "," $3 }' "$test" >"$W/$name.lines"
}
# predicts NAME OPTIONS...: the same from the checkpoint
predicts() {
    name=$1
    shift
    "$P" "$@" "$W/$name.ckpt" <"$W/$name.lines" >"$W/got" 2>"$W/err"
    if [ -s "$W/got" ] && cmp -s "$W/got" "$W/$name.expected"; then
        pass
    else
        fail "$name $*: $(wc -l <"$W/got") predictions, unlike those of dlrm from line" \
            "$(cmp "$W/got" "$W/$name.expected" 2>&1 | sed 's/.*line //') $(tail -2 "$W/err")"
    fi
}

adult_data="--format adult"
for kind in lr 'fm --dim 8' 'deepfm --dim 5 --top 16-1' 'ffm --dim 3' \
    'dlrm --dim 16 --bottom 5-32-16 --top 32-1' 'dcnv2 --dim 8' 'dcnv2 --dim 8 --cross 2' \
    'wukong --dim 8' 'dlrm --dim 8 --dtype bf16' 'dlrm --dim 8 --rows-dtype i8' \
    'dlrm --dim 24 --rows-dtype f16' 'wukong --dim 8 --rows-dtype bf16 --wukong 1x16'; do
    name=$(echo "$kind" | tr -d ' -')
    train "$name" "$W/train.csv" $adult_data --model $kind
    predicts "$name"
    predicts "$name" --batch 1
    predicts "$name" --batch 7 --threads 2 --json
    part && predicts "$name" --isa scalar
    predicts "$name" --write "$W/file.safetensors"
done
[ "$(uname -m)" = x86_64 ] && predicts dcnv2dim8 --isa avx2

# Ranks that save in parts, with sums of rows in buckets.
train ranks "$W/lists.csv" --format delimited --columns "$W/lists.columns" --model fm --dim 8 \
    --ranks 3 --repro-shards 8 --plan rw
predicts ranks
predicts ranks --batch 1 --write "$W/file.safetensors"
# Checkpoints to be served, of rows of few bits, by ranks and plans: the predictions are those of
# the whole checkpoint whose rows are narrowed as it is loaded. Nothing trains on from them.
for bits in 8 4 2; do
    "$P" --rows i$bits "$W/ranks.ckpt" <"$W/ranks.lines" >"$W/bits$bits.expected" 2>"$W/err"
    cp "$W/ranks.lines" "$W/bits$bits.lines"
    for where in "--ranks 3 --plan rw" "--ranks 2 --plan cw --checkpoint-async --every 9" \
        "--threads 2 --tier $W/bits.tier --memory 8M"; do
        part || continue
        rm -rf "$W/bits$bits.ckpt"
        try "--checkpoint-bits $bits $where" "$B/dlrm" --data "$W/lists.csv" --batch 100 \
            --checkpoint "$W/bits$bits.ckpt" --format delimited --columns "$W/lists.columns" \
            --model fm --dim 8 --repro-shards 8 $where --checkpoint-bits $bits
        predicts bits$bits
    done
done
predicts bits2 --write "$W/file.safetensors"
for way in "--data $W/lists.csv --resume" "--test $W/lists.csv --eval"; do
    if "$B/dlrm" $way --checkpoint "$W/bits4.ckpt" --batch 100 --format delimited --columns \
        "$W/lists.columns" --model fm --dim 8 --repro-shards 8 >"$W/out" 2>"$W/err"; then
        fail "$way of rows of few bits"
    elif grep -q "checkpoint_bits is '4, to be served, not trained' there" "$W/err"; then
        pass
    else
        fail "$way of rows of few bits: $(tail -1 "$W/err")"
    fi
done
train criteo "$W/criteo.tsv" --rows 1000 --bottom 13-16-8 --dim 8
predicts criteo
predicts criteo --batch 1 --json
# Tables of 100 MB in a program that may have 80 MB: from the file, not from the checkpoint; as
# those whose ids are keys, of which 75 MB are the map.
if [ -z "$SANITIZER" ]; then
    for of in '--rows 60000 --bottom 13-16-16 --dim 16' \
        '--keys --rows 1000000 --key-rows 170000 --bottom 13-16-2 --dim 2'; do
        rm -rf "$W/large.ckpt"
        train large "$W/criteo.tsv" $of
        predicts large --write "$W/large.safetensors"
        for from in "--file $W/large.safetensors" "$W/large.ckpt"; do
            (ulimit -d 80000 && "$P" --batch 64 $from <"$W/large.lines") >"$W/got" 2>"$W/err"
            same "80 MB, $of, $from" "$(cmp -s "$W/got" "$W/large.expected" && echo right ||
                grep -o 'no memory for' "$W/err")" \
                "$(case $from in --file*) echo right ;; *) echo no memory for ;; esac)"
        done
    done
    rm -r "$W/large.ckpt" "$W/large.safetensors"
else
    skip "tables larger than memory: $SANITIZER takes its own"
fi
# Layers so wide that a single sample does not read the weights of what is 0.
train wide "$W/criteo.tsv" --rows 1000 --bottom 13-160-256-8 --top 272-1 --dim 8
for isa in best avx2 scalar; do
    [ $isa = avx2 ] && [ "$(uname -m)" != x86_64 ] && continue
    predicts wide --batch 1 --isa $isa
done
train some "$W/criteo.tsv" --format criteo --columns I2-I4,I13,C1,C9-C12,C26 --rows 1000 \
    --bottom 4-16-8 --dim 8
predicts some
predicts some --batch 1 --json
awk 'BEGIN { srand(4); print "buys,a,b,likes"; for (i = 0; i < 1500; i++) printf "%d,%.3g,%d,%s\n",
    rand() < 0.3, rand() * 9, rand() * 12, rand() < 0.2 ? "" : rand() < 0.5 }' >"$W/tasks.csv"
printf 'header\nbuys label weight=2\na dense\nb category hash rows=12\nlikes label\n' \
    >"$W/tasks.columns"
train tasks "$W/tasks.csv" --format delimited --columns "$W/tasks.columns" --dim 8
sed -i 1d "$W/tasks.lines"
predicts tasks
predicts tasks --batch 7
sed 's/^sex .*/sex label positive=Male weight=0.5/' $adult/adult.columns >"$W/two.columns"
for kind in lr 'fm --dim 4' 'ffm --dim 3' 'deepfm --dim 5 --top 16-2'; do
    name=$(echo "two$kind" | tr -d ' -')
    train "$name" "$W/train.csv" --format delimited --columns "$W/two.columns" --model $kind
    predicts "$name"
    predicts "$name" --batch 7 --write "$W/file.safetensors"
    part && predicts "$name" --batch 1 --isa scalar --threads 2
done
# Tables in towers, which the layers see a row of each.
for kind in dlrm dcnv2 'wukong --ranks 4 --nodes 2 --repro-shards 8' 'dlrm --dtype bf16'; do
    name=$(echo "towers$kind" | tr -d ' -')
    train "$name" "$W/criteo.tsv" --rows 1000 --bottom 13-16-8 --dim 8 --towers 5 --model $kind
    predicts "$name"
    predicts "$name" --batch 7 --threads 2 --isa scalar
done
predicts towersdlrm --batch 1 --json
predicts towersdlrm --write "$W/file.safetensors"
# Keys: most of those in the data have no row in the end, and read their initial one.
keys="--keys --rows 1000000 --key-rows 96 --bottom 13-16-8 --dim 8 --seed 3"
train keys "$W/criteo.tsv" $keys --admit 2 --evict lfu:3
predicts keys
predicts keys --batch 1 --json
predicts keys --batch 7 --threads 2 --isa scalar
predicts keys --write "$W/keys.safetensors"
predicts keys --batch 7 --threads 2 --isa scalar --file "$W/keys.safetensors"
train scored "$W/criteo.tsv" $keys --evict score
predicts scored --write "$W/scored.safetensors"
train keychain "$W/criteo.tsv" $keys --every 4 --checkpoint-delta 9 # the last is differential
predicts keychain
for rows in i8 f16 bf16; do
    train keys$rows "$W/criteo.tsv" $keys --evict age:4 --rows-dtype $rows --ranks 2 \
        --repro-shards 4 --plan rw
    predicts keys$rows
    predicts keys$rows --batch 1 --write "$W/file.safetensors"
done
"$P" --rows i4 "$W/keys.ckpt" <"$W/keys.lines" >"$W/keysi4.expected"
cp "$W/keys.lines" "$W/keysi4.lines"
cp -r "$W/keys.ckpt" "$W/keysi4.ckpt"
predicts keysi4 --rows i4 --write "$W/file.safetensors"
train keylists "$W/lists.csv" --format delimited --columns "$W/lists.columns" --model fm --dim 8 \
    --keys --key-rows 32 --admit 90 --repro-shards 4
predicts keylists
predicts keylists --batch 1 --isa scalar
predicts keylists --batch 7 --write "$W/file.safetensors"
# Hot rows and warm ones, whose sums stay apart in bags of several ids: lists with weights, sums in
# buckets, which of warm rows are those of their places among them.
hot() { # NAME DATA OPTIONS...
    name=$1 data=$2
    shift 2
    try "a profile of $name" "$B/dlrm" --data "$data" --hot-rows 3 "$@" \
        --save-profile "$W/$name.profile"
    train "$name" "$data" --hot-rows 3 --profile "$W/$name.profile" "$@"
    predicts "$name"
    predicts "$name" --batch 7 --threads 2 --write "$W/file.safetensors"
}
lists="--format delimited --columns $W/lists.columns --repro-shards 8"
hot hotfm "$W/lists.csv" $lists --model fm --dim 8
predicts hotfm --batch 1 --isa scalar
hot hotlr "$W/lists.csv" $lists --model lr --rows-dtype i8
train hotranks "$W/lists.csv" $lists --model fm --dim 8 --hot-rows 3 --ranks 3 --plan rw \
    --profile "$W/hotfm.profile" --every 4 --checkpoint-delta 9 # the last is differential
predicts hotranks
hot warmfm "$W/lists.csv" $lists --model fm --dim 8 --warm-rows 9
predicts warmfm --batch 1 --isa scalar
hot warmlr "$W/lists.csv" $lists --model lr --rows-dtype i8 --warm-rows 9
train warmranks "$W/lists.csv" $lists --model fm --dim 8 --ranks 4 --nodes 2 --plan rw \
    --warm-rows 9 --profile "$W/warmfm.profile" --every 4 --checkpoint-delta 9 # and no hot ones
predicts warmranks
predicts warmranks --batch 7 --write "$W/file.safetensors"
same "warm rows make another model of lists" \
    "$(cmp -s "$W/hotfm.expected" "$W/warmfm.expected" || echo differs)" differs
hot hotcriteo "$W/criteo.tsv" --rows 1000 --bottom 13-16-8 --dim 8 --warm-rows 5
predicts hotcriteo --batch 1 --json
same "hot rows make another model of lists" \
    "$(cmp -s "$W/hotfm.expected" "$W/ranks.expected" || echo differs)" differs
train ffm "$W/some.ffm" --format libffm --model ffm
predicts ffm --batch 33
train svm "$W/some.svm" --format libsvm --rows 20 --model lr
predicts svm --threads 2

# Batches of a reader; and the AUC that narrow rows cost on data with a planted truth.
auc() { "$P" --synthetic 60000 "$@" "$W/planted.ckpt" 2>"$W/err"; }
"$B/dlrm" --synthetic 60000 --rows 1000 --batch 256 --checkpoint "$W/planted.ckpt" >"$W/out" 2>&1
same "test figures of batches" "$(auc | cut -c1-25)" \
    "$(sed -n 's/^test auc=\([0-9.]*\) logloss=\([0-9.]*\) .*/auc \1 logloss \2/p' "$W/out")"
auc >"$W/trained"
# within ROWS LOSS: AUC is at most so much below that of the rows as trained
within() {
    auc --rows $1 >"$W/narrow"
    if paste "$W/trained" "$W/narrow" |
        awk -v most=$2 '{ loss = $6 - $12; exit !($12 > 0.5 && loss <= most && $12 != $6) }'; then
        pass
    else
        fail "rows of $1: $(cat "$W/narrow" "$W/err"), as trained $(cat "$W/trained")"
    fi
}
within i8 0.0005
within i4 0.002
within i2 0.05

# ---- what is refused ----
of=dcnv2dim8
refused() { # TEXT SED...: model.json of $of changed so is refused with this text
    text=$1
    shift
    rm -rf "$W/changed.ckpt"
    cp -r "$W/$of.ckpt" "$W/changed.ckpt"
    for json in "$W"/changed.ckpt/*/model.json; do
        sed "$@" "$json" >"$W/json" && cp "$W/json" "$json"
    done
    if "$P" "$W/changed.ckpt" <"$W/$of.lines" >"$W/got" 2>"$W/err"; then
        fail "$*: not refused"
    elif grep -q -- "$text" "$W/err"; then
        pass
    else
        fail "$*: says '$(cat "$W/err")', not '$text'"
    fi
}
refused 'lacks "dim"' 's/ "dim": 8,//'
refused 'lacks "cross"' '/"cross"/d'
refused 'schema: lacks "format"' 's/"format": "delimited", //'
refused '"neo_model" is 2, and' 's/"neo_model": 1/"neo_model": 2/'
refused '"attention" is not known here' 's/"dim"/"attention": 3, "dim"/'
refused 'model "dcnv2" has no "gelu"' 's/"dim"/"gelu": "tanh", "dim"/'
refused 'model "dcnv3" is not known' 's/"dcnv2"/"dcnv3"/'
refused 'model "fm" has no "top"' 's/"dcnv2"/"fm"/'
refused 'has shape \[64\], expected \[65\]' 's/"top": \[\([0-9]*\), 64/"top": [\1, 65/'
refused '"top" must begin with' 's/"top": \[/"top": [1/'
refused '"bottom" must begin with 5 and end with 9' 's/"dim": 8/"dim": 9/'
refused 'byte [0-9]*: ' 's/"schema": {/"schema": [/'
refused 'a saved dictionary\|the saved dictionary' 's/workclass/klass/'
of=criteo
refused 'schema: ids "words" are not known here' 's/"ids": "hash"/"ids": "words"/'
refused '"rows" stands twice' 's/"rows": \[/"rows": [1], "rows": [/'
of=towersdlrm
refused '"towers" does not say which' 's/"towers": .*,/"towers": 5,/'
refused 'not one number of each feature' 's/"towers": .0, /"towers": [/'
refused 'towers: 3 has no feature' '/"towers"/s/ 3,/ 2,/g'
of=hotcriteo
refused '"hot_rows" does not say which' 's/"hot_rows": .*],/"hot_rows": 3,/'
refused '"warm_rows" does not say which' 's/"warm_rows": .*],/"warm_rows": 3,/'
refused 'hot_rows: 1001 of the 1000 rows of bags.C1' 's/"hot_rows": .3, /"hot_rows": [1001, /'
refused 'has shape \[3' 's/"hot_rows": .3, /"hot_rows": [2, /'
refused 'warm_rows: 1001 of the 1000 rows of bags.C1' 's/"warm_rows": .5, /"warm_rows": [1001, /'
refused 'C1.warm.* has shape \[5' 's/"warm_rows": .5, /"warm_rows": [4, /'
refused '"cool_rows" is not known here' 's/"hot_rows"/"cool_rows": [1], "hot_rows"/'
refused 'neither keys nor a gpt have "hot_rows"' \
    's/"hot_rows"/"keys": {"rows": 0, "evict": "lru", "period": 0, "seed": 1}, "hot_rows"/'
of=keys
refused 'no memory' 's/"rows": 96/"rows": 9223372036854775807/'
refused 'keys: "seed" is missing' 's/, "seed": 3//'
refused '"keys" does not say how rows begin' 's/"keys": {.*}/"keys": "lru"/'
refused 'evict "lfo" is not known here' 's/"lfu"/"lfo"/'
refused 'has shape \[256\], expected \[1024\]\|has shape \[256,8\], expected' \
    's/"rows": 96/"rows": 960/'
# Files of keys. at NAME: where the data of a tensor begin; put FROM TO COUNT: bytes over others.
file=$W/scored.safetensors
at() {
    echo $(($(od -An -tu8 -N8 "$file") + 8 +
        $(grep -ao "\"$1\":{[^}]*" "$file" | sed 's/.*\[\([0-9]*\),[0-9]*\]$/\1/')))
}
put() {
    dd if="$file" of="$W/changed.st" bs=1 skip=$1 seek=$2 count=$3 conv=notrunc 2>"$W/dd"
}
file_refused() { # TEXT: $W/changed.st is
    if "$P" --file "$W/changed.st" - <"$W/keys.lines" >"$W/got" 2>"$W/err"; then
        fail "a file of keys: not refused, '$1'"
    else
        same "a file of keys" "$(grep -c -- "$1" "$W/err") $1" "1 $1"
    fi
    cp "$file" "$W/changed.st"
}
edited() { LC_ALL=C sed "$1" "$file" >"$W/changed.st"; }
edited 's/"key_layout":"1"/"key_layout":"2"/'
file_refused 'key_layout "2" is not known here'
edited 's/"key_layout":"1"/"key_layour":"1"/'
file_refused 'key_layout "" is not known here'
edited 's/"bags.C7.tags"/"bags.C7.togs"/'
file_refused 'has no tensor bags.C7.tags'
edited 's/"bags.key_step"/"bags.key_stop"/'
file_refused 'has no tensor bags.key_step'
head -c $(($(wc -c <"$file") - 1)) "$file" >"$W/changed.st"
file_refused 'changed.st: the header describes [0-9]* bytes of data, the file has'
keys=$(at bags.C7.keys) used=$(at bags.C7.used) tags=$(at bags.C7.tags)
# Lines that follow one another, in the last set.
line=$(od -An -v -tu8 -w8 -j$used -N2048 "$file" |
    awk '$1 && last { at = NR - 2 } { last = $1 } END { print at }')
for change in "$((keys + 8 * line + 1)) $((keys + 8 * line)) 1" \
    "$((keys + 8 * line)) $((keys + 8 * line + 8)) 8" \
    "$((tags + line + 1)) $((tags + line)) 1" "$keys $used 2048"; do
    put $change
    file_refused 'bags.C7.keys: line [0-9]*: its key does not belong there'
done
of=criteo
rm "$W"/changed.ckpt/*/model.json
"$P" "$W/changed.ckpt" </dev/null 2>"$W/err"
same "a checkpoint without model.json" \
    "$(grep -o 'model.json: is not there: the program' "$W/err")" \
    'model.json: is not there: the program'
"$P" --file "$(echo "$W"/changed.ckpt/*/model-00001*)" - </dev/null 2>"$W/err"
same "weights alone as a file" "$(grep -o 'not of neo_model_write' "$W/err")" \
    'not of neo_model_write'
echo 'not,enough' | "$P" "$W/dcnv2dim8.ckpt" >/dev/null 2>"$W/err"
same "a short line" "$(cat "$W/err")" 'column 1: 2 fields, expected 15'
finish serve/predict
