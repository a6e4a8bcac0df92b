#!/bin/sh
# ubsan.sh: the examples under clang's UndefinedBehaviorSanitizer, which notices what gcc's does not
# (offsets of null pointers), in plain C.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/ubsan
rm -rf "$W"
mkdir -p "$W"
clang="clang -std=c11 -O0 -g1 -I. -w -DNEO_NO_SIMD -fsanitize=undefined
    -fno-sanitize-recover=undefined"
echo 'int main(void) { return 0; }' >"$W/probe.c"
if ! have clang || ! $clang -o "$W/probe" "$W/probe.c" 2>/dev/null; then
    skip "clang's UndefinedBehaviorSanitizer: no clang, or no runtime for it"
    finish build/ubsan
    exit
fi
# runs NAME ARGUMENTS...: to its end, without a finding.
runs() {
    name=$1
    shift
    if "$W/$name" "$@" >"$W/out" 2>"$W/err" && ! grep -q 'runtime error' "$W/err"; then
        pass
    else
        fail "$name $*: $(grep -E 'runtime error' "$W/err" | head -1) $(tail -1 "$W/err")"
    fi
}
$clang -c -o "$W/neo.o" examples/neo.c || fail "neo.c does not compile"
for name in dlrm gpt sum allreduce shard bags custom job; do
    source=examples/$name.c
    [ -f $source ] || source=examples/train/$name/main.c
    $clang -o "$W/$name" $source "$W/neo.o" -lm -pthread || fail "$name does not compile"
done
dlrm="--synthetic 1000 --dim 4 --bottom 13-8-4 --top 8-1 --batch 64 --repro-shards 4
    --optimizer adam --clip-norm 1 --checkpoint $W/dlrm_saved"
runs dlrm $dlrm --ranks 3 --plan cw
runs dlrm $dlrm --ranks 2 --plan rw --dense-shard full --epochs 2 --resume
gpt="--steps 3 --layers 1 --heads 2 --width 16 --context 16 --batch 8 --repro-shards 4"
runs gpt $gpt --ranks 3 --shard full --checkpoint "$W/gpt_saved"
runs gpt $gpt --ranks 2 --shard none --checkpoint "$W/gpt_saved" --resume
for name in sum allreduce shard bags custom; do runs $name; done
runs job "$W/job_saved" 2
rm -rf "$W"
finish build/ubsan
