#!/bin/sh
# digests.sh: --digests of dlrm and gpt, and build/diff: runs of the same bits are equal on any
# ranks; the first step, tensor and rank that differ are named; what cannot be read is said.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/digests
rm -rf "$W"
mkdir -p "$W"
dlrm="$B/dlrm --synthetic 4000 --rows 1000 --batch 256 --repro-shards 8 --digest-every 5"

# says NAME STATUS TEXT A B: build/diff of two runs.
says() {
    got=$("$B/diff" "$W/$4" "$W/$5" 2>&1)
    if [ $? = "$2" ]; then pass; else fail "$1: exit status is not $2"; fi
    case $got in
    *"$3"*) pass ;;
    *) fail "$1: expected '$3', got: $got" ;;
    esac
}
$dlrm --digests "$W/one" >"$W/out" 2>&1 || fail "dlrm: $(tail -1 "$W/out")"
$dlrm --digests "$W/four" --ranks 4 --plan rw >"$W/out" 2>&1 || fail "ranks: $(tail -1 "$W/out")"
$dlrm --digests "$W/again" --ranks 4 --plan rw >"$W/out" 2>&1
says "ranks" 0 "equal: 70 tensors, 4 common steps to step 15" one four
$dlrm --digests "$W/other" --lr 0.02 >"$W/out" 2>&1
says "learning rate" 1 "step 5: bottom.0.weight differs (with it 68 of 70 tensors)" one other
says "learning rate" 1 "equal to step 0" one other

# One bit of one rank: of a part, and of a tensor that all ranks have.
sed -i 's/^10 part .* \(bags.C7.weight\)/10 part 0123456789abcdef \1/' "$W/again.2"
says "a part" 1 "step 10: bags.C7.weight differs (with it 1 of" four again
says "a part" 1 "in the part of rank 2" four again
sed 's/^5 whole .* \(top.0.bias\)/5 whole 0123456789abcdef \1/' "$W/four.3" >"$W/x" &&
    mv "$W/x" "$W/four.3"
says "ranks that part" 1 "other bits on rank 3" one four
printf '20 whole 01234' >>"$W/one.0" # a run that was killed
sed '/^5 /d' "$W/one.0" >"$W/fewer.0"
says "half a line" 0 "3 common steps to step 15" one fewer
sed 's/ C3\./ C33./; s/bags.C3.weight/bags.C33.weight/' "$W/one.0" >"$W/name.0"
says "a name" 1 "has no such tensor" one name
echo "3 of 4" >"$W/bad.0"
says "no digests" 2 "bad.0:1: expected: step, whole or part, digest, name" one bad
says "no file" 2 "none.0: cannot be opened" one none
sed 's/^/1/' "$W/one.0" | sed '/01234$/d' >"$W/later.0"
sed -i 's/^1\([05]\)/9\1/' "$W/later.0"
says "no common step" 2 "has no step that the other has" one later

# A resumed run adds to the file.
"$B/dlrm" --synthetic 4000 --rows 1000 --batch 256 --repro-shards 8 --epochs 2 --digests "$W/two" \
    --digest-every 5 >"$W/out" 2>&1
$dlrm --digests "$W/on" --checkpoint "$W/ckpt" >"$W/out" 2>&1
"$B/dlrm" --synthetic 4000 --rows 1000 --batch 256 --repro-shards 8 --epochs 2 --digests "$W/on" \
    --digest-every 5 --checkpoint "$W/ckpt" --resume >"$W/out" 2>&1
says "resumed" 0 "7 common steps to step 30" two on
# A run that was killed after its checkpoint, then resumed by fewer ranks: what it left of later
# steps, whole or half, is no part of the run that goes on.
$dlrm --digests "$W/cut" --checkpoint "$W/cut.ckpt" --ranks 4 --plan rw >"$W/out" 2>&1
for rank in 0 1 2 3; do
    sed -n 's/^15 /20 /p' "$W/cut.$rank" >"$W/x"
    cat "$W/x" >>"$W/cut.$rank"
    printf '25 part 01234' >>"$W/cut.$rank"
done
"$B/dlrm" --synthetic 4000 --rows 1000 --batch 256 --repro-shards 8 --epochs 2 --digests "$W/cut" \
    --digest-every 5 --checkpoint "$W/cut.ckpt" --resume --ranks 2 >"$W/out" 2>&1
says "resumed by fewer ranks" 0 "7 common steps to step 30" two cut
# A run anew begins all files anew, also those of ranks that it has not.
$dlrm --digests "$W/cut" >"$W/out" 2>&1
says "fewer ranks, anew" 0 "equal: 70 tensors, 4 common steps to step 15" one cut
printf '5 whole 0123456789abcdef x\n\0\n' >"$W/zero.0"
says "a byte of 0" 2 "zero.0:2: is no text" zero one

"$B/dlrm" --synthetic 100 --digests "$W/none/x" >"$W/out" 2>&1 &&
    fail "a folder that is not there was accepted"
case $(tail -1 "$W/out") in
*"--digests: $W/none/x.0: No such file"*) pass ;;
*) fail "a folder that is not there: $(tail -1 "$W/out")" ;;
esac

head -c 60000 examples/data/shakespeare/input.txt >"$W/text"
gpt="$B/gpt --data $W/text --steps 4 --digest-every 2 --repro-shards 4"
$gpt --digests "$W/gpt1" >"$W/out" 2>&1 || fail "gpt: $(tail -1 "$W/out")"
$gpt --digests "$W/gpt2" --ranks 2 --shard full >"$W/out" 2>&1 || fail "gpt: $(tail -1 "$W/out")"
says "gpt" 0 "3 common steps to step 4" gpt1 gpt2
finish programs/digests
