#!/bin/sh
# merge.sh: build/merge makes of a checkpoint that three ranks saved in parts the file that a model
# on
# one rank evaluates with the same result; and says what is wrong.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/merge
rm -rf "$W"
mkdir -p "$W"
adult=examples/data/adult/adult
data="--format adult --data $adult.data --test $adult.test --batch 256 --repro-shards 8 --plan rw"
result() { grep -oE 'auc=[0-9.]+ logloss=[0-9.]+ ne=[0-9.]+' "$W/out"; }
"$B/dlrm" $data --ranks 3 --checkpoint "$W/ckpt" >"$W/out" 2>"$W/err" ||
    fail "dlrm: $(tail -1 "$W/err")"
trained=$(result)
if "$B/merge" "$W/ckpt" "$W/all.safetensors" 2>"$W/err"; then
    pass
else
    fail "merge: $(cat "$W/err")"
fi
"$B/dlrm" $data --load "$W/all.safetensors" --eval >"$W/out" 2>"$W/err"
if [ -n "$trained" ] && [ "$(result)" = "$trained" ]; then
    pass
else
    fail "the merged file evaluates as '$(result)', its ranks as '$trained'"
fi
refuses() { # TEXT ARGUMENTS...: a message with the text, and no success
    text=$1
    shift
    if "$B/merge" "$@" 2>"$W/err"; then
        fail "merge $*: no error"
    elif grep -q -- "$text" "$W/err"; then
        pass
    else
        fail "merge $*: says '$(cat "$W/err")', not '$text'"
    fi
}
refuses "no whole checkpoint" "$W" "$W/none.safetensors"
refuses "of step 123" "$W/ckpt" "$W/none.safetensors" --step 123
refuses "none/there" "$W/ckpt" "$W/none/there.safetensors"
refuses "usage: $B/merge " "$W/ckpt"
refuses "--step 5x: no step above 0" "$W/ckpt" "$W/none.safetensors" --step 5x
refuses "--step 0: no step above 0" "$W/ckpt" "$W/none.safetensors" --step 0
"$B/merge" "$W/ckpt" "$W/with.safetensors" --state 2>"$W/err" || fail "--state: $(cat "$W/err")"
if grep -qa 'bags.education.momentum1' "$W/with.safetensors" &&
    ! grep -qa 'momentum1' "$W/all.safetensors"; then
    pass
else
    fail "--state has no optimizer state, or a file without it has"
fi
finish programs/merge
