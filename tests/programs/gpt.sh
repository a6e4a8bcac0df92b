#!/bin/sh
# gpt.sh: the GPT example as a user runs it: the same bits however its parameters are sharded, over
# ranks as threads, slots, recomputation, micro-batches, checkpoints; those of a plain trainer;
# memory and traffic as predicted; weights from PyTorch; bad input.

B=${B:-build}
. tests/harness.sh
D=$B/gpt
W=$B/tmp/gpt
rm -rf "$W"
mkdir -p "$W"
if [ ! -x "$D" ]; then
    fail "$D is not built"
    finish programs/gpt
    exit
fi
steps=300 every=100 most=2.75
if [ -n "$SANITIZER" ]; then steps=30 every=10 most=4; fi
if [ "$SANITIZER" = thread ] && setarch -R true 2>/dev/null; then D="setarch -R $D"; fi

# The model of tests/golden/gpt_plain.c. Most leaves have one sequence of the 6, two have none.
full=examples/data/shakespeare/input.txt
head -c 60000 $full >"$W/text"
model="--layers 2 --heads 2 --width 32 --context 16 --batch 6 --lr 0.001 --warmup 2 --threads 1"
model="$model --sample 0"
small="--data $W/text $model --steps 6"
# gpt ARGUMENTS...: a run; what it prints is in $W/out and $W/err. Where races are looked for, what
# one rank of one thread says comes from the program that was built without.
gpt() {
    run=$D
    case $SANITIZER:$* in
    thread:*--ranks\ [2-9]* | thread:*--threads\ [2-9]*) ;;
    thread:*) run=${PLAIN:-$B}/gpt ;;
    esac
    timeout 900 $run "$@" >"$W/out" 2>"$W/err" </dev/null
}
# digest ARGUMENTS...: of a run; empty if it failed.
digest() { gpt "$@" && state_in "$W/out"; }
on() {
    ranks=$1
    shift
    digest $small --repro-shards 8 --ranks $ranks "$@"
}
# refused LABEL TEXT ARGUMENTS...: exits non-zero by itself, says TEXT on stderr once, prints no
# digest.
refused() {
    label=$1 text=$2
    shift 2
    gpt "$@"
    status=$?
    if [ $status = 0 ] || [ $status -ge 124 ]; then
        fail "$label: exit status $status"
    elif [ -n "$SANITIZER" ] && found=$(grep -E 'Sanitizer|runtime error' "$W/err"); then
        fail "$label: a sanitizer's finding: $(echo "$found" | head -1)"
    elif [ -s "$W/out" ] && grep -q '^state' "$W/out"; then
        fail "$label: printed a digest"
    elif [ "$(grep -c -- "$text" "$W/err")" != 1 ]; then
        fail "$label: '$text' is not said once in: $(tail -3 "$W/err" | tr '\n' ' ')"
    else
        pass
    fi
}

# ---- the same bits ----

base=$(on 1)
[ -n "$base" ] || { fail "a plain run: $(tail -1 "$W/err")"; finish programs/gpt; exit; }
val=$(grep '^val loss' "$W/out")
while read -r ranks shard more; do
    part || continue
    same "$ranks ranks, $shard $more" "$(on $ranks --shard $shard $more)" "$base"
    same "$ranks ranks, $shard $more: validation" "$(grep '^val loss' "$W/out")" "$val"
done <<END
1 none
1 zero2 --threads 3
1 full --recompute --check-finite
2 none
2 zero1
2 zero2 --recompute
2 full --threads 2
2 full --slots 1
2 hybrid
3 none --recompute
3 zero1 --slots 1
3 zero2
3 full --slots 3
4 none
4 zero1 --recompute
4 zero2 --slots 1
4 full --slots 1 --recompute
4 hybrid
4 hybrid --factor 4
4 hybrid --factor 1
8 none --recompute
8 zero1
8 zero2 --slots 3
8 full
8 full --slots 1
8 hybrid --slots 1
8 hybrid --factor 2 --recompute
END
narrow=$(on 1 --products bf16)
if [ -n "$narrow" ] && [ "$narrow" != "$base" ]; then
    pass
else
    fail "products of bf16: '$narrow'"
fi
odd="--products bf16 --width 31 --heads 1"
alone=$(on 1 $odd)
[ -n "$alone" ] && pass || fail "products of bf16, an odd width: $(tail -1 "$W/err")"
same "2 ranks, products of bf16, an odd width" "$(on 2 $odd --recompute)" "$alone"
for isa in scalar avx2 avx512 avx512bf16 amx neon; do
    got=$(NEO_ISA=$isa on 2)
    if [ -z "$got" ] && grep -q 'not supported\|cannot run\|lacks\|not available\|has no' \
        "$W/err"; then
        skip "NEO_ISA=$isa: this machine has none"
    else
        same "NEO_ISA=$isa" "$got" "$base"
        [ $isa = scalar ] || same "bf16, NEO_ISA=$isa" "$(NEO_ISA=$isa on 2 --products bf16)" \
            "$narrow"
    fi
done

# Micro-batches: each number and way to add is a definition of its own, and that of the plain
# trainer.
"$B/tests/golden/gpt_plain" >"$W/plain" 2>&1 || fail "golden/gpt_plain: $(tail -1 "$W/plain")"
plain() { sed -n "s/^shards $1 accumulate $2 $3: state //p" "$W/plain"; }
same "plain" "$base" "$(plain 8 1 each)"
while read -r k how ranks more; do
    part || continue
    same "accumulate $k, $how, $ranks ranks $more" \
        "$(on $ranks --accumulate $k --accumulate-mode $how $more)" "$(plain 8 $k $how)"
done <<END
2 each 1
2 each 3 --shard zero2
2 each 8 --slots 1
4 each 4 --shard hybrid --recompute
4 each 2 --shard none
2 end 1
2 end 2 --recompute
2 end 8 --shard none
4 end 3 --shard full
4 end 4 --shard hybrid
4 end 4 --shard zero1
END
same "accumulate 1, end" "$(on 4 --accumulate 1 --accumulate-mode end)" "$base"
same "one leaf" "$(digest $small)" "$(plain 1 1 each)"
same "five leaves" "$(digest $small --repro-shards 5 --ranks 3)" "$(plain 5 1 each)"
same "five leaves, five ranks" "$(digest $small --ranks 5 --shard zero2)" "$(plain 5 1 each)"
two=$(digest $small --repro-shards 2 --accumulate 2) # one piece on each of two ranks, two on one
for shard in none zero1 zero2 full; do
    same "two leaves, accumulate 2, $shard" \
        "$(digest $small --ranks 2 --shard $shard --accumulate 2)" "$two"
done

narrow=$(on 1 --dtype bf16)
if [ -n "$narrow" ] && [ "$narrow" != "$base" ]; then
    pass
else
    fail "bf16 changes nothing: '$narrow'"
fi
same "bf16, none" "$(on 2 --dtype bf16 --shard none)" "$narrow"
same "bf16, full" "$(on 3 --dtype bf16 --recompute)" "$narrow"
same "bf16, hybrid" "$(on 8 --dtype bf16 --shard hybrid)" "$narrow"
for more in "--seed 2" "--lr 0.002" "--clip 0" "--weight-decay 0" "--beta2 0.9"; do
    got=$(on 1 $more)
    if [ -n "$got" ] && [ "$got" != "$base" ]; then
        pass
    else
        fail "$more changes nothing: '$got'"
    fi
done

# ---- what it learns, prints and takes ----

learn="$small --batch 16 --steps $steps --lr 0.005 --min-lr 0.001 --warmup 20 --repro-shards 8"
learn="$learn --sample 40"
gpt $learn --eval-every $every --ranks 2 --prompt 'We '
if awk -v most=$most \
    '/^step/ { n++; last = $NF } /^val loss/ { val = $3 }
    END { exit !(n == 2 && val < most && val < last) }' "$W/out"
then pass; else fail "it does not learn: $(cat "$W/out")"; fi
sed -n '/^---- sample/,/^-----------/p' "$W/out" >"$W/sample2"
gpt $learn --ranks 3 --shard zero1 --prompt 'We '
sed -n '/^---- sample/,/^-----------/p' "$W/out" >"$W/sample3"
if [ "$(tail -c +18 "$W/sample2" | head -c 3)" = 'We ' ] &&
    [ "$(wc -c <"$W/sample2")" = $((17 + 3 + 40 + 18)) ]; then
    pass
else
    fail "a sample of 40 characters: $(cat "$W/sample2")"
fi
if cmp -s "$W/sample2" "$W/sample3"; then pass; else fail "samples of 2 and 3 ranks differ"; fi
gpt $learn --temperature 0
sed -n '/^---- sample/,/^-----------/p' "$W/out" >"$W/sample2"
gpt $learn --top-k 1
sed -n '/^---- sample/,/^-----------/p' "$W/out" >"$W/sample3"
if cmp -s "$W/sample2" "$W/sample3"; then pass; else fail "--top-k 1 is not the likeliest"; fi

for more in "--ranks 1" "--ranks 4 --recompute" "--ranks 3 --shard zero2 --accumulate 2" \
    "--ranks 8 --shard hybrid --slots 1" \
    "--ranks 4 --shard none --dtype bf16"; do
    gpt $small --repro-shards 8 --memory $more
    if awk '/predicted/ {
            gsub(",", ""); n++
            for (i = 1; i <= NF; i++) {
                if ($i == "predicted") p = $(i + 1)
                if ($i == "counted") c = $(i + 1)
            }
            bad += p != c
        }
        END { exit bad > 0 || n != 4 }' "$W/out"; then
        pass
    else
        fail "memory and traffic, $more: $(cat "$W/out" | head -6)"
    fi
done
grep '^  besides' "$W/out" >"$W/kept"
gpt $small --repro-shards 8 --memory --recompute
if [ "$(sed 's/.*activations //' "$W/kept")" -gt "$(sed -n 's/.*activations //p' "$W/out")" ]; then
    pass
else
    fail "--recompute keeps as much"
fi

# ---- checkpoints ----

gpt $small --repro-shards 8 --ranks 4 --checkpoint "$W/ckpt/a" --every 3
same "with checkpoints" "$(sed -n 's/^state //p' "$W/out")" "$base"
cp -r "$W/ckpt/a" "$W/ckpt/end"
gpt $small --repro-shards 8 --ranks 4 --checkpoint "$W/ckpt/c" --every 3 --checkpoint-async
same "with checkpoints beside training" "$(sed -n 's/^state //p' "$W/out")" "$base"
diff -r "$W/ckpt/a" "$W/ckpt/c" >"$W/err" && pass || fail "other bytes: $(cat "$W/err")"
rm -r "$W/ckpt/a/step-000000000006"
for ranks in 1 3 8; do
    rm -rf "$W/ckpt/b"
    cp -r "$W/ckpt/a" "$W/ckpt/b"
    same "resumed on $ranks ranks" "$(on $ranks --checkpoint "$W/ckpt/b" --resume)" "$base"
    if grep -q 'loaded step 3 from' "$W/err"; then
        pass
    else
        fail "resumed on $ranks ranks: $(cat "$W/err")"
    fi
done
rm -rf "$W/ckpt/b"
cp -r "$W/ckpt/a" "$W/ckpt/b"
same "resumed without shards" \
    "$(on 2 --shard none --checkpoint "$W/ckpt/b" --resume --recompute)" "$base"
rm -rf "$W/ckpt/b"
cp -r "$W/ckpt/a" "$W/ckpt/b"
same "resumed by the checkpoint's leaves" \
    "$(digest $small --ranks 2 --checkpoint "$W/ckpt/b" --resume)" "$base"
same "nothing left" "$(on 2 --checkpoint "$W/ckpt/end" --resume)" "$base"
if grep -q 'nothing left to train' "$W/err"; then
    pass
else
    fail "nothing left: $(cat "$W/err")"
fi
same "nothing there yet" "$(on 3 --checkpoint "$W/ckpt/new" --resume)" "$base"
refused "another run's checkpoint" 'holds step 3 of an earlier run' $small --checkpoint "$W/ckpt/a"
refused "another number of leaves" "repro_shards is '8' there, '4' here" $small --repro-shards 4 \
    --ranks 2 --checkpoint "$W/ckpt/a" --resume
gpt $small --gelu tanh --steps 1 --checkpoint "$W/ckpt/tanh"
refused "another GELU" "gelu is 'tanh' there, not defined here: .* (.not defined. is the default)" \
    $small --checkpoint "$W/ckpt/tanh" --resume
# Memory that is short is said to be whose, and what takes less.
if [ -z "$SANITIZER" ]; then # whose allocators end a program
    for part in "--context 512: for the activations: give --recompute, or a smaller --batch" \
        "--layers 24 --context 16: for the weights, gradients and .*: give more ranks"; do
        (ulimit -v 1000000 && $D --data "$W/text" --threads 1 --steps 1 --width 1024 --batch 8 \
            ${part%%:*}) >"$W/out" 2>"$W/err"
        if grep -q "no memory for .*, ${part#*: }" "$W/err"; then pass; else
            fail "$part: $(cat "$W/err")"
        fi
    done
fi
refused "other micro-batches" 'micro_batches' $small --repro-shards 8 --accumulate 2 \
    --checkpoint "$W/ckpt/a" --resume
refused "another text" "text is '60000 characters" --data README.md $model --repro-shards 8 \
    --checkpoint "$W/ckpt/a" --resume
cp README.md "$W/read"
refused "a trace over the text" 'read is both read and written' --steps 1 \
    --data "README.md,$W/read" --trace "$W/./read"
refused "another width" 'has shape .*: give the --layers, --width and --data of its' $small \
    --repro-shards 8 --width 64 --checkpoint "$W/ckpt/a" --resume
refused "other layers" 'has no tensor .*: give the --layers, --width and --data of its' $small \
    --repro-shards 8 --layers 3 --checkpoint "$W/ckpt/a" --resume
refused "other heads" "heads is '2' there, '4' here" $small --repro-shards 8 --heads 4 \
    --checkpoint "$W/ckpt/a" --resume

# ---- tokens: the same characters in a file as llm.c's give the same bits ----

if have python3; then
    letters=$(python3 tests/programs/tokens.py "$W/text" "$W/tokens" "$W/tokenizer")
    tokens="--data $W/tokens --vocabulary $letters"
    for ranks in 1 2 3 4; do
        same "tokens on $ranks ranks" "$(on $ranks $tokens)" "$base"
    done
    same "validation of tokens" "$(grep '^val loss' "$W/out")" "$val"
    on 4 $tokens --steps 3 --checkpoint "$W/ckpt/tokens" >/dev/null
    half=$(on 1 $tokens --checkpoint "$W/ckpt/tokens" --resume)
    same "tokens, resumed" "$half" "$(on 1 --steps 3 --checkpoint "$W/ckpt/text" >/dev/null
        on 4 --checkpoint "$W/ckpt/text" --resume)"
    if grep -q 'loaded step 3 from' "$W/err"; then pass; else fail "resumed: $(cat "$W/err")"; fi
    refused "other tokens" "text is '60000 tokens, CRC32C" $small --repro-shards 8 \
        --checkpoint "$W/ckpt/tokens" --resume
    sample() { sed -n '/^---- sample/,/^-----------/p' "$W/out"; }
    gpt $learn --prompt 'We '
    sample >"$W/sample2"
    numbers=$(python3 -c "letters = sorted(set(open('$W/text', 'rb').read()))
print(*map(letters.index, b'We '))")
    gpt $learn $tokens --tokenizer "$W/tokenizer" --prompt "$numbers"
    sample >"$W/sample3"
    cmp "$W/sample2" "$W/sample3" >"$W/err" && pass || fail "text of tokens: $(cat "$W/sample3")"
    # A vocabulary that is rounded up has tokens that stand for nothing.
    gpt $learn $tokens --vocabulary $((letters + 3)) --tokenizer "$W/tokenizer" \
        --prompt "$numbers $((letters + 2))"
    same "text of a rounded vocabulary" "$(sample | sed -n '2s/>.*/>/p')" "We <$((letters + 2))>"
    # A text in two files, and validation data of its own.
    head -c 54000 "$W/text" >"$W/text1"
    tail -c 6000 "$W/text" >"$W/text2"
    same "two files" "$(on 2 --data "$W/text1,$W/text2")" "$base"
    same "a file that validates" "$(on 2 --data "$W/text1" --valid "$W/text2")" "$base"
    same "its loss" "$(grep '^val loss' "$W/out")" "$val"
    head -c 1024 "$W/tokens" >"$W/none" # a header that counts no tokens, before a text
    printf '\000\000\000\000' | dd of="$W/none" bs=1 seek=8 conv=notrunc 2>/dev/null
    same "no tokens, then a text" "$(on 2 --data "$W/none,$W/text")" "$base"
    same "no tokens, then tokens" "$(on 2 --vocabulary $letters --data "$W/none,$W/tokens")" "$base"
    # GPT-2's vocabulary, of which most has no gradient.
    want=$(digest --data "$W/tokens" $model --steps 2 --repro-shards 4)
    same "50257 tokens on 3 ranks" "$(digest --data "$W/tokens" $model --steps 2 --repro-shards 4 \
        --ranks 3 --shard zero2)" "$want"
    gpt --preset gpt2-124m --data "$W/tokens" --summary
    if grep -q '^124439808 parameters' "$W/out"; then pass; else fail "$(tail -2 "$W/out")"; fi
    gpt --help
    if grep -q 'warmup 700 --beta2 0.95$' "$W/out"; then pass; else fail "the preset's beta2"; fi

    head -c 5000 "$W/tokens" >"$W/cut"
    head -c 1000 "$W/tokens" >"$W/header"
    head -c 1100 "$W/tokenizer" >"$W/cut_pieces"
    refused "tokens that are cut off" 'says 60000 tokens, behind it are 3976 bytes' $small \
        --data "$W/cut"
    refused "a header that is cut off" 'is cut off in its header' $small --data "$W/header"
    refused "another file of llm.c's" 'begins with 20240328, not 20240520' $small \
        --data "$W/tokenizer"
    { printf '\210\330\064\001\002'; tail -c +6 "$W/tokens"; } >"$W/newer"
    refused "a newer file" 'is of version 2, not 1' $small --data "$W/newer"
    { head -c 4 "$W/tokenizer"; printf '\003'; tail -c +6 "$W/tokenizer"; } >"$W/newer_pieces"
    tail -c +1025 "$W/tokens" >"$W/bare"
    refused "a newer tokenizer" 'is of version 3, not 1 or 2' $small $tokens \
        --tokenizer "$W/newer_pieces"
    refused "tokens without a header" 'byte 1 is 0, so it is no text.* by --vocabulary' $small \
        --data "$W/bare"
    same "tokens without a header, counted" \
        "$(digest $small --data "$W/bare" --vocabulary $letters)" "$(digest $small $tokens)"
    head -c 2001 "$W/bare" >"$W/half"
    refused "half a token" 'has 2001 bytes: half a token' $small --data "$W/half" \
        --vocabulary $letters
    refused "a token above the vocabulary" \
        "is $((letters - 1)): not below the $((letters - 1)) of --vocabulary" $small \
        --data "$W/tokens" --vocabulary $((letters - 1))
    refused "a vocabulary of a text" '--vocabulary is of tokens' $small --vocabulary 9
    refused "a text that validates tokens" 'a text, unlike what was read' $small $tokens \
        --valid "$W/text"
    refused "a prompt in words" "'be' does not begin with a token" $small $tokens --prompt '4 be'
    refused "a prompt above the vocabulary" "'$letters' does not begin" $small $tokens \
        --prompt $letters
    refused "a tokenizer of a text" '--tokenizer is for tokens' $small --tokenizer "$W/tokenizer"
    refused "another tokenizer" "has $letters tokens, not the 50257" $small --data "$W/tokens" \
        --tokenizer "$W/tokenizer"
    refused "a smaller tokenizer" "has $letters tokens, not the 129" $small $tokens \
        --vocabulary 129 --tokenizer "$W/tokenizer"
    refused "no tokenizer" "no file of llm.c's" $small $tokens --tokenizer "$W/text"
    refused "a tokenizer that is cut off" 'is cut off in token 38' $small $tokens \
        --tokenizer "$W/cut_pieces"
    refused "a preset" '--preset gpt3: there is none' $small --preset gpt3
    refused "a preset on a text" '--preset is of tokens, and --data' --preset gpt2-124m
else
    skip "tokens: no python3 to write them"
fi

# ---- weights from elsewhere ----

{ head -c 20000 $full; grep '[$&3JQVXZ]' $full | head -c 40000; } >"$W/all" # all 65 characters
golden="--data $W/all $(echo "$model" | sed 's/--heads 2/--heads 4/')"
golden="$golden --load tests/golden/gpt.safetensors --steps 0"
loaded=$(digest $golden --prefix final.)
same "loaded" "$(cat "$W/err")" 'loaded the weights of tests/golden/gpt.safetensors'
same "loaded on 3 ranks" \
    "$(digest $golden --prefix final. --ranks 3 --repro-shards 8 --checkpoint "$W/ckpt/golden")" \
    "$loaded"
if have python3; then
    if python3 - "$W/ckpt/golden/step-000000000000" tests/golden/gpt.safetensors <<'END'
import glob, json, struct, sys
def tensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    meta = header.pop("__metadata__", {})
    return {k: (v["shape"], data[slice(*v["data_offsets"])], meta.get(k))
            for k, v in header.items()}
want = {k[6:]: v for k, v in tensors(sys.argv[2]).items() if k.startswith("final.")}
got, count = {k: bytearray(len(v[1])) for k, v in want.items()}, 0
for path in sorted(glob.glob(sys.argv[1] + "/model-*.safetensors")):
    for name, (shape, data, place) in tensors(path).items():
        rows, cols, at = shape[0], (shape[1] if len(shape) > 1 else 1), [0, 0]
        if place: # "[3,0] of [65,32] wte.weight"
            at = (json.loads(place.split(" of ")[0]) + [0])[:2]
            name = name.split("[")[0]
        width = want[name][0][1] if len(want[name][0]) > 1 else 1
        for r in range(rows):
            begin = 4 * ((at[0] + r) * width + at[1])
            got[name][begin:begin + 4 * cols] = data[4 * cols * r:4 * cols * (r + 1)]
            count += cols
assert count * 4 == sum(len(v[1]) for v in want.values())
assert all(bytes(got[k]) == want[k][1] for k in want)
END
    then pass; else fail "loaded weights are not those of the file"; fi
else
    skip "loaded weights: no python3 to compare them"
fi
refused "names that are not there" 'no tensor for the weight wte.weight' $golden
refused "another width" 'wte.weight' $golden --prefix final. --width 64
refused "no file of weights" 'none.safetensors' $golden --load "$W/none.safetensors"

# ---- bad input ----

printf 'to be or not to be, that is the question' >"$W/short"
: >"$W/empty"
refused "a missing file" 'missing: cannot open' --data "$W/missing"
refused "a missing file, 4 ranks" 'missing: cannot open' --data "$W/missing" --ranks 4
if said=$(cd "$W" && "$OLDPWD/$B/gpt" 2>&1); then fail "no default text: accepted"; fi
case $said in
*"input.txt: cannot open"*"(the default, a file of neo's own folder: name a text by --data)")
    pass ;;
*) fail "no default text: $said" ;;
esac
refused "a directory" 'cannot be read' --data "$W"
refused "an empty file" '0 characters' --data "$W/empty"
refused "a text shorter than the context" \
    '40 characters, of which the last 4 are for validation: too few for a --context of 16' \
    --data "$W/short" $model
refused "a character of two bytes" "the character 1, 'ü', is not in the vocabulary" $small \
    --prompt ü
refused "a character that is not there" "the character 4, '{', is not in the vocabulary" $small \
    --prompt 'to {'
refused "heads" '--width 32: must be a multiple of the 3 of --heads' $small --heads 3
refused "a rate that rises" '--min-lr 0.0001: above --lr 5e-05: give a lower --min-lr' $small \
    --lr 0.00005
for more in --tf32 --exact '--graph off'; do
    refused "$more on the CPU" "$more is for a GPU: give --device cuda" $small $more
done
refused "digests of nothing" '--digest-every needs --digests' $small --digest-every 9
refused "no layers" '--layers must be at least 1' $small --layers 0
refused "an option" '--nosuch: no such option' $small --nosuch
if NEO_ISA= "$B/gpt" $small --steps 0 >"$W/out" 2>&1; then pass; else
    fail "an empty NEO_ISA: $(tail -1 "$W/out")"; fi
refused "a value behind =" '--seed=3: no such option; a value is a word of its own' $small --seed=3
refused "a number" '--steps many: not a whole number' $small --steps many
refused "no value" '--lr: needs a value' $small --lr
refused "a mode" '--shard most: not none, zero1, zero2, full or hybrid' $small --shard most \
    --ranks 2
refused "a way to accumulate" '--accumulate-mode never' $small --accumulate-mode never
refused "a dtype" '--dtype f8' $small --dtype f8
refused "a factor alone" '--factor needs --shard hybrid' $small --factor 2
refused "a factor" 'factor is 3, which does not divide the 4 ranks' $small --ranks 4 \
    --shard hybrid --factor 3
refused "a hybrid that is not possible" 'hybrid sharding by 3 of 6 ranks' $small --ranks 6 \
    --repro-shards 8 --shard hybrid
refused "no half for a hybrid" '3 ranks have no half, give --factor' $small --ranks 3 \
    --repro-shards 8 --shard hybrid
refused "too few leaves" '--repro-shards 2: must be at least the 4 ranks' $small --repro-shards 2 \
    --ranks 4
refused "a checkpoint without a name" '--resume needs --checkpoint' $small --resume
refused "two sources" 'leave one out' $small --load x --checkpoint "$W/x" --resume
if [ -w /dev/full ]; then
    timeout 900 $D $small --ranks 2 >/dev/full 2>"$W/err"
    same "standard output on a full disk" "$?" 1
fi
: >"$W/plain_file"
refused "a checkpoint that cannot be written" 'plain_file' $small --checkpoint "$W/plain_file/a"
$D --help >"$W/out" 2>"$W/err" && grep -q -- '--accumulate-mode' "$W/out" && pass || fail "--help"
options_tested gpt "$W/out"

rm -rf "$W"
finish programs/gpt
