#!/bin/sh
# inference.sh: with NEO_INFERENCE neo.h is an object of at most 150,000 bytes of text (gcc -O2,
# x86-64), what trains is absent by name at compile time, and neo_serve.h predicts the same bits.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/inference
rm -rf "$W"
mkdir -p "$W"
if [ -n "$SANITIZER" ]; then
    skip "sizes and bits of an object that has none of $SANITIZER"
    finish serve/inference
fi
printf "#define NEO_INFERENCE\n#define NEO_IMPLEMENTATION\n#include \"neo.h\"\n" >"$W/neo.c"
if [ "$(uname -m)" = x86_64 ] && have gcc && have size; then
    try "neo.h" gcc -std=c11 -O2 -I. -c -o "$W/neo.o" "$W/neo.c"
    text=$(size "$W/neo.o" | awk 'NR == 2 { print $1 }')
    if [ "${text:-0}" -gt 50000 ] && [ "$text" -le 150000 ]; then
        pass
    else
        fail "neo.h with NEO_INFERENCE has $text bytes of text, at most 150000"
    fi
    cat >"$W/silu.c" <<'END'
#include "neo.h"
#include <stdio.h>
int main(void) {
    float x[2] = {1, 2}, y[2];
    int64_t offsets[2] = {0, 2};
    neo_ctx_desc defaults = {0};
    neo_attention_desc d = {.length = 2, .heads = 1, .kind = NEO_ATTENTION_SILU};
    const neo_attention_bias bias = {{0}};
    neo_tensor in = neo_tensor_2d(x, NEO_F32, 2, 1), out = neo_tensor_2d(y, NEO_F32, 2, 1);
    neo_ctx *ctx;
    if (neo_ctx_create(&defaults, &ctx) != NEO_OK) return 1;
    for (int i = 0; i < 4; i++) {
        if (neo_attention_forward(ctx, &d, in, in, in, out, neo_tensor_none()) == NEO_OK) return 1;
        puts(neo_last_error());
        d.kind = NEO_ATTENTION_SOFTMAX, d.bias_count = i % 2, d.bias = i == 2 ? &bias : NULL;
        d.offsets = i ? neo_tensor_none() : neo_tensor_1d(offsets, NEO_I64, 2);
    }
    return 0;
}
END
    try "attention" gcc -std=c11 -DNEO_INFERENCE -I. -o "$W/silu" "$W/silu.c" "$W/neo.o" -lm \
        -pthread
    same "attention that is left out" "$("$W/silu" | uniq -c | sed 's/^ *//')" \
        "4 neo_attention_forward: NEO_INFERENCE leaves out SiLU, offsets and biases"
else
    skip "the size of the object: it is stated for gcc and x86-64"
fi
try "neo_serve.h, of whose implementation no call is undeclared" ${CC:-cc} -std=c11 -Wall -Wextra \
    -Werror -fsyntax-only -DNEO_INFERENCE -DNEO_IMPLEMENTATION -I. -x c neo_serve.h
# A file that calls what trains does not compile, for the lack of each name.
names="neo_mlp_backward neo_cross_backward neo_wukong_backward neo_optim_step neo_bags_create
    neo_bce_with_logits neo_metrics_create neo_reader_open neo_save neo_dropout"
{
    printf '#include "neo_serve.h"\n'
    for name in $names; do
        echo "void *${name}_of(void) { return (void *)&$name; }"
    done
} >"$W/call.c"
try "all names without the macro" ${CC:-cc} -std=c11 -I. -fsyntax-only "$W/call.c"
if ${CC:-cc} -std=c11 -DNEO_INFERENCE -I. -fsyntax-only "$W/call.c" 2>"$W/err"; then
    fail "what trains is there"
fi
for name in $names; do
    if grep -q "undeclared.*['\`‘]$name['’]\|['\`‘]$name['’].*undeclared" "$W/err"; then
        pass
    else
        fail "$name: $(head -3 "$W/err")"
    fi
done
try "neo_serve.h" ${CC:-cc} -std=c11 -O1 -Wall -Wextra -Werror -DNEO_INFERENCE= -DNEO_SHARED= -I. \
    -o "$W/predict" tests/serve/predict.c "$B/neo_serve.o" -lm -pthread
head -2000 examples/data/adult/adult.data >"$W/train.csv"
cp examples/data/adult/adult.columns "$W"
avx2=
[ "$(uname -m)" = x86_64 ] && avx2="--isa avx2"
for model in "wukong --dim 8" "dlrm --dim 8 --dtype bf16"; do
    data="--format adult --model $model"
    rm -rf "$W/ckpt"
    "$B/dlrm" --data "$W/train.csv" $data --checkpoint "$W/ckpt" >"$W/out" 2>"$W/err" &&
        "$B/dlrm" --test "$W/train.csv" $data --checkpoint "$W/ckpt" --eval \
            --predict "$W/expected" >"$W/out" 2>"$W/err" || fail "dlrm: $(tail -1 "$W/err")"
    for options in "" "--batch 1 --json" "--isa scalar" "$avx2"; do
        "$W/predict" $options "$W/ckpt" <"$W/train.csv" >"$W/got" 2>"$W/err"
        if [ -s "$W/got" ] && cmp -s "$W/got" "$W/expected"; then
            pass
        else
            fail "$model: predictions with NEO_INFERENCE $options:" \
                "$(cmp "$W/got" "$W/expected" 2>&1)"
        fi
    done
done
finish serve/inference
