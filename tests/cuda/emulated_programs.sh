#!/bin/sh
# emulated_programs.sh: what a person with a GPU runs, on the processor
# (tests/cuda/emulator/cuda_on_cpu.h): bench/cuda/ops.c at tiny sizes, which compares every
# operation with the CPU; dlrm and gpt on the device with the digests of the CPU. And what builds
# without CUDA, or without a GPU, say.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/cuda_bench
rm -rf "$W"
mkdir -p "$W"
. tests/cuda/digests.sh
[ ! -x "$B/dlrm" ] || plain=$B
[ "$NEO_FULL" = all ] || fast_ranks=3
NEO_EMU_SEED=${NEO_EMU_SEED:-3} # lanes, blocks and streams in another order than they are numbered
ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
export NEO_EMU_SEED ASAN_OPTIONS

bench=$B/tests/emulated_ops
if [ -x "$bench" ]; then
    if (cd "$W" && "$OLDPWD/$bench" --quick --threads 1) >"$W/out" 2>"$W/err"; then
        pass
    else
        fail "the bench: $(cat "$W/out" "$W/err" | grep -v '^bench [a-z_]*\.' | tail -3)"
    fi
    for name in copy bags.forward.uniform.d128 bags.backward.uniform.d128 \
        bags.backward.zipf.d16.f16 layer_norm.backward \
        gemm.exact.nn.4096x4096x4096 gemm.cublaslt.tn.256x512x2048 attention.backward \
        attention.silu.forward attention.silu.jagged.bf16.backward adam.1e8 \
        step.dlrm step.dlrm.busy step.dlrm.graph; do
        if grep -qE "^bench $name[^ ]* value=[0-9.e+-]+ unit=" "$W/out"; then
            pass
        else
            fail "the bench has no line $name"
        fi
    done
    if [ "$(ls "$W")" = "err
out" ]; then pass; else fail "the quick bench wrote files: $(ls "$W" | tr '\n' ' ')"; fi
    if grep -q 'ceiling=[0-9]' "$W/out"; then
        fail "the quick bench shows shares of a ceiling"
    else
        pass
    fi

    dlrm_agrees "$B/tests/emulated_dlrm" 67 20
    # Bags that repeat: looked up once, by one rank and between several.
    for ranks in 1 3; do
        agree "$B/tests/emulated_dlrm" --synthetic 200 --batch 20 --dim 8 --bottom 13-24-8 \
            --top 24-1 --rows 9 --repro-shards 4 --dedup --ranks $ranks
    done
    # Ids that are keys: the host says who has a row, on any ranks.
    model="--synthetic 300 --batch 20 --dim 32 --bottom 13-24-32 --top 24-1 --rows 3000 --seed 3"
    model="$model --repro-shards 4 --keys --key-rows 200"
    while read -r options; do
        ranks_agree "$B/tests/emulated_dlrm" $model ${options%%--ranks*} -- \
            --ranks ${options##*--ranks}
    done <<END
--admit 2 --ranks 1
--evict lfu:4 --rows-dtype i8 --ranks 3 --plan rw
--admit 3 --bloom --clip-norm 0.05 --micro-batches 2 --ranks 2 --plan cw
--evict score --prune 0.2 --ranks 2 --plan tw
--dedup --admit 2 --rows-dtype bf16 --ranks 1
--dedup --ranks 2 --plan rw
END
    # Rows below a cache on the device that has room for little more than a batch: they leave and
    # come again, from a file and from host memory.
    while read -r memory options; do
        model="--synthetic 300 --batch 20 --dim 8 --bottom 13-24-8 --top 24-1 --rows 500 --seed 3"
        model="$model --repro-shards 4"
        there=$(digest "$B/tests/emulated_dlrm" $model $options --device cuda --exact \
            --memory $memory)
        some=$(sed -n 's/^tier: .*; \([0-9]*\) rows were read.*/\1/p' "$W/out_of")
        whole=$(on_cpu "$B/tests/emulated_dlrm" $model $(echo "$options" | sed 's/--tier [^ ]*//'))
        same "$options: all rows on the CPU, and below a device" "$there" "$whole"
        if [ "${some:-0}" -gt 100 ]; then pass; else fail "$options: $some rows were read"; fi
    done <<END
4350K --optimizer adam --tier $W/rows
4225K --optimizer adagrad --tier - --rows-dtype i8 --pipeline off
4256K --optimizer adagrad --tier - --clip-norm 0.05 --micro-batches 2 --ranks 2 --plan cw
4400K --optimizer adam --tier - --dedup
4350K --optimizer adam --tier - --keys --key-rows 96
4230K --optimizer adagrad --tier $W/rows --keys --key-rows 96 --rows-dtype i8
END
    refused "no tier" "memory_bytes is 1048576, a batch of these tables needs" \
        "$B/tests/emulated_dlrm" --synthetic 60 --tier - --memory 1M --device cuda
    # A batch is a step, and a step a launch, where the work memory grows, too.
    "$B/tests/emulated_dlrm" --synthetic 60 --batch 20 --dim 8 --bottom 13-24-8 --top 24-1 \
        --rows 300 --device cuda --report "$W/report.html" >"$W/out" 2>"$W/err"
    said='cuda:0: 3 steps in 3 launches (0 steps were split) of [1-9][0-9]* nodes, '
    for file in out report.html; do
        if grep -q "$said" "$W/$file"; then pass; else fail "$file has no line '$said'"; fi
    done
    # No host waits in a step of several ranks, nor for how many rows of gradients are kept, nor for
    # a norm over those of tables.
    head -c 4000 examples/data/shakespeare/input.txt >"$W/text"
    # passes STEPS SPLIT PROGRAM OPTION...
    passes() {
        said="cuda:0: $1 steps in [0-9]* launches ($2 steps were split) "
        shift 2
        "$@" --device cuda >"$W/out" 2>"$W/err"
        if grep -q "$said" "$W/out"; then pass; else
            fail "$*: $(grep '^cuda:0: ' "$W/out" || tail -1 "$W/err")"
        fi
    }
    for options in '--micro-batches 2' '--clip-norm 0.5' '--micro-batches 2 --clip-norm 0.02' \
        --dedup '--keys --key-rows 96' '--optimizer lamb --clip-norm 0.5' '--dedup --ranks 2' \
        '--optimizer lamb --ranks 2'; do
        passes 6 0 "$B/tests/emulated_dlrm" --synthetic 120 --batch 20 --dim 8 \
            --bottom 13-24-8 --top 24-1 --rows 300 $options
    done
    for over in '' _nccl; do
        [ -x "$B/tests/emulated_dlrm$over" ] || continue
        model="--synthetic 120 --batch 20 --dim 16 --bottom 13-24-16 --top 24-1 --rows 200"
        while read -r options; do
            passes 6 0 "$B/tests/emulated_dlrm$over" $model --ranks $options
        done <<END
2
4
2 --pipeline off
2 --micro-batches 2
2 --clip-norm 0.5 --dense-shard full
3 --clip-norm 0.05 --micro-batches 3 --pipeline off --plan dp
END
        for shard in none full; do # the norm over ranks, too
            passes 3 0 "$B/tests/emulated_gpt$over" --data "$W/text" --steps 3 --layers 2 \
                --heads 2 --width 32 --context 16 --batch 4 --sample 0 --ranks 2 --shard $shard
        done
    done
    gpt_agrees "$B/tests/emulated_gpt" "$W/text" 2
    refused "a graph, perhaps" "neither on nor off" "$B/tests/emulated_dlrm" --synthetic 60 \
        --graph perhaps
    refused "a graph of gpt, perhaps" "neither on nor off" "$B/tests/emulated_gpt" \
        --data "$W/text" --graph perhaps
    dlrm_ranks_agree "$B/tests/emulated_dlrm" 60 20
    gpt_ranks_agree "$B/tests/emulated_gpt" "$W/text" 2
    fast_agrees "$B/tests/emulated_dlrm" --synthetic 80 --batch 40 --dim 16 --bottom 13-72-64-16 \
        --top 72-1 --rows 300
    fast_agrees "$B/tests/emulated_gpt" --data "$W/text" --steps 2 --layers 1 --heads 2 --width 64 \
        --context 16 --batch 16 --repro-shards 16 --sample 0
    # Products of bf16 without --exact: the bits of one rank on three, and a loss near that of f32.
    model="--data $W/text --steps 2 --layers 2 --heads 2 --width 64 --context 16 --batch 16"
    model="$model --repro-shards 16 --sample 0"
    run="$B/tests/emulated_gpt $model --device cuda --products bf16"
    narrow=$(digest $run)
    same "gpt of bf16: one rank and 3, without --exact" "$narrow" "$(digest $run --ranks 3)"
    differ "gpt of bf16: with --exact and without" "$narrow" "$(digest $run --exact)"
    same "gpt of bf16: with a graph and without" "$narrow" "$(digest $run --graph off)"
    # Gradients of weights go by pairs of blocks, where two windows may be open at once, and of
    # three blocks the last goes alone; a step of twelve is 250 kernels and calls of libraries at
    # most.
    three="$run --steps 1 --layers 3 --batch 4 --repro-shards 2"
    for residual in f32 bf16; do
        same "gpt of bf16, 3 blocks, residual $residual: two windows and one" \
            "$(digest $three --residual $residual)" \
            "$(digest $three --residual $residual --slots 1)"
    done
    for options in '--gelu erf' '--gelu tanh' '--gelu tanh --residual bf16'; do
        run_of_twelve="$run --steps 1 --layers 12 --batch 1 --repro-shards 1 $options"
        nodes=$(digest $run_of_twelve >/dev/null
            sed -n 's/^cuda:0: .*(0 steps were split) of \([0-9]*\) nodes.*/\1/p' "$W/out_of")
        if [ "${nodes:-1000}" -le 250 ]; then pass; else
            fail "gpt of twelve blocks $options: $nodes nodes of a step"
        fi
    done
    # GELU by tanh in the products: other bits than after them, the same from one run to another.
    gelu=$(digest $run --gelu tanh)
    # Second choices are counted: here none, but attention with heads of 6 columns.
    counts='0 products without cuBLASLt, 0 epilogues without it, 0 attentions of f32 for bf16, '
    if grep -q ", $counts" "$W/out_of"; then pass; else
        fail "gpt of bf16: no '$counts' in: $(grep ^cuda: "$W/out_of")"
    fi
    narrow_heads="--steps 1 --layers 1 --heads 8 --width 48 --batch 2 --repro-shards 1"
    odd=$(digest $run $narrow_heads)
    if [ -n "$odd" ] && grep -q '[1-9][0-9]* attentions of f32 for bf16, ' "$W/out_of"; then
        pass
    else
        fail "gpt of bf16, heads of 6 columns: $(grep ^cuda: "$W/out_of")"
    fi
    same "gpt of bf16, GELU by tanh: one rank and 3" "$gelu" "$(digest $run --gelu tanh --ranks 3)"
    same "gpt of bf16, GELU by tanh: with a graph and without" "$gelu" \
        "$(digest $run --gelu tanh --graph off)"
    same "gpt of bf16, GELU by tanh, recomputed" "$gelu" "$(digest $run --gelu tanh --recompute)"
    differ "gpt of bf16: GELU by tanh and by erf" "$gelu" "$narrow"
    agree "$B/tests/emulated_gpt" $model --products bf16 --gelu tanh
    # The residual of bf16: other bits again, the same on ranks, recorded or not, recomputed.
    thin=$(digest $run --gelu tanh --residual bf16)
    if grep -q ", $counts" "$W/out_of"; then pass; else
        fail "gpt, a residual of bf16: no '$counts' in: $(grep ^cuda: "$W/out_of")"
    fi
    differ "gpt: a residual of bf16 and of f32" "$thin" "$gelu"
    for other in '--ranks 3' '--graph off' --recompute; do
        same "gpt, a residual of bf16: $other" "$thin" \
            "$(digest $run --gelu tanh --residual bf16 $other)"
    done
    refused "a residual of bf16 with --exact" "residual bf16 needs --products bf16" $run \
        --residual bf16 --exact
    wide=$(digest "$B/tests/emulated_gpt" $model --device cuda)
    for other in "$narrow" "$gelu" "$thin"; do
        if [ -n "$other" ] && printf '%s\n%s\n' "$other" "$wide" | awk '
            / loss / { n++; if (n == 1) x = $NF; else d = $NF - x }
            END { exit !(n == 2 && d < 0.003 && d > -0.003) }'; then pass; else
            fail "gpt of bf16 and of f32: '$other' and '$wide'"
        fi
    done
    for graph in on off; do # the loss of a batch is seen when the next one has been launched
        refused "a loss that is no number, graph $graph" "step 3: the loss is nan" \
            "$B/tests/emulated_dlrm" --synthetic 120 --batch 20 --dim 8 --bottom 13-24-8 \
            --top 24-1 --rows 300 --optimizer sgd --lr 3e7 --device cuda --graph $graph --threads 1
    done
    refused "TF32 with the bits of the CPU" "give one of them" "$B/tests/emulated_dlrm" \
        --synthetic 60 --exact --tf32
    if [ -x "$B/tests/emulated_gpt_nccl" ]; then # over a stand-in for NCCL
        model="--synthetic 60 --batch 20 --dim 8 --bottom 13-24-8 --top 24-1 --rows 300"
        model="$model --repro-shards 4 --clip-norm 0.05"
        ranks_agree "$B/tests/emulated_dlrm_nccl" $model -- --ranks 3 --dense-shard full
        model="--data $W/text --steps 2 --layers 1 --heads 2 --width 32 --context 16 --batch 4"
        model="$model --sample 0 --repro-shards 4"
        ranks_agree "$B/tests/emulated_gpt_nccl" $model --dtype bf16 -- --ranks 4 --shard hybrid
        # Ranks that share a GPU go without NCCL, and say so.
        one=$(on_cpu "$B/tests/emulated_gpt_nccl" $model)
        run="$B/tests/emulated_gpt_nccl $model --device cuda --exact --ranks 2"
        same "gpt on one GPU, NCCL compiled in" "$one" "$(NEO_EMU_ONE_GPU=1 digest $run)"
        if grep -q 'share a GPU, and NCCL wants one for each rank: tensors move without' "$W/err"
        then pass; else fail "no word of that: $(tail -2 "$W/err")"; fi
        # NCCL's own sums: the same from run to run, a definition of their own.
        model="--data $W/text --steps 2 --layers 1 --heads 2 --width 32 --context 16 --batch 6"
        model="$model --sample 0 --shard none"
        run="$B/tests/emulated_gpt_nccl $model --device cuda --exact --ranks 3"
        own=$(digest $run --sums nccl --checkpoint "$W/own")
        same "gpt with NCCL's sums: two runs" "$own" "$(digest $run --sums nccl)"
        if [ -n "$own" ] && [ "$own" != "$(digest $run)" ]; then pass; else
            fail "gpt with NCCL's sums has the bits of the tree: '$own'"
        fi
        refused "another kind of sums" "sums" $run --checkpoint "$W/own" --resume --steps 4
        NEO_EMU_ONE_GPU=1 refused "NCCL's sums on one GPU" "share a GPU" $run --sums nccl
    else
        skip "dlrm and gpt over NCCL: its header is not here"
    fi
    refused "sums, perhaps" "neither tree nor nccl" "$B/tests/emulated_dlrm" --synthetic 60 \
        --sums perhaps
    refused "NCCL's sums without NCCL" "make nccl" "$B/tests/emulated_dlrm" --synthetic 60 \
        --sums nccl
    # plan --calibrate of GPUs: all that a cluster file has of a rank, links of a node, and host
    # memory; the file makes the same plan, and is a device's.
    plan=$B/tests/emulated_plan_nccl
    [ -x "$plan" ] || plan=$B/tests/emulated_plan
    printf 'batch 100\ntable a 100x16 2\nunit bottom beside 13-64-16\n' >"$W/a.model"
    printf 'ranks 4 4\nmemory 64MiB\n' >"$W/a.cluster"
    NEO_EMU_GPUS=2 "$plan" "$W/a.model" "$W/a.cluster" --set threads=1 --calibrate --device cuda \
        >"$W/a.plan" 2>"$W/err"
    sed -n '/^memory_bandwidth/,$p' "$W/a.plan" >>"$W/a.cluster"
    names="memory_bandwidth flops lookup update copy bucketed id sort row kept step step_near cache"
    for name in $names host_bandwidth local 'layer [a-z-]*' 'rows [a-z-]*'; do
        [ "$(grep -cE "^$name [0-9.e+-]*[1-9]" "$W/a.cluster")" = \
            "$(case $name in layer* | rows*) echo 9 ;; *) echo 1 ;; esac)" ] && pass ||
            fail "plan --calibrate --device cuda: $name: $(tail -3 "$W/a.plan" "$W/err")"
    done
    sed '/^memory_bandwidth/,$d' "$W/a.plan" >"$W/a.before"
    "$plan" "$W/a.model" "$W/a.cluster" >"$W/out" 2>"$W/err"
    same "a plan by a device's figures" "$(cat "$W/out" "$W/err")" "$(cat "$W/a.before")"
    if grep -q '^device cuda$' "$W/a.cluster" && grep -q 'one after another [1-9]' "$W/out"; then
        pass
    else
        fail "a device's cluster file: $(cat "$W/a.cluster" "$W/out")"
    fi
    refused "a GPU's figures for the CPU" "'device cuda': a GPU's figures, and --device is cpu" \
        "$B/tests/emulated_dlrm" --synthetic 60 --cluster "$W/a.cluster" --show-plan
    "$B/tests/emulated_dlrm" --synthetic 60 --batch 20 --rows 300 --device cuda --show-plan \
        --cluster "$W/a.cluster" >"$W/out" 2>"$W/err" && pass || fail "$(tail -2 "$W/err")"
    refused "plan on a GPU that is not there" "ordinal is 9" "$plan" "$W/a.model" "$W/a.cluster" \
        --calibrate --device cuda:9
    refused "plan on a device of another kind" "'tpu' is none of cpu, cuda, cuda:N" "$plan" \
        "$W/a.model" "$W/a.cluster" --calibrate --device tpu
    refused "plan of a device, not measured" "is of --calibrate" "$plan" "$W/a.model" \
        "$W/a.cluster" --device cuda
    refused "a GPU that is not there" "ordinal is 9" "$B/tests/emulated_dlrm" --synthetic 60 \
        --device cuda:9
else
    skip "a GPU on the processor: there is no C++ compiler"
fi

for name in dlrm gpt; do
    if [ -x "$B/$name" ]; then
        refused "$name without CUDA" "built without CUDA" "$B/$name" \
            $([ $name = gpt ] || echo --synthetic 60) --device cuda
    else
        skip "$name without CUDA: it is not built"
    fi
done
if [ -x "$B/plan" ]; then
    printf 'batch 100\ntable a 100x16 2\n' >"$W/a.model"
    echo 'ranks 1 1' >"$W/a.cluster"
    refused "plan without CUDA" "built without CUDA" "$B/plan" "$W/a.model" "$W/a.cluster" \
        --calibrate --device cuda
else
    skip "plan without CUDA: it is not built"
fi
[ ! -x "$B/dlrm_cuda" ] || . tests/cuda/refused.sh

finish cuda/emulated_programs
