# digests.sh: to be read with `.` after harness.sh, W being a directory: the examples on a GPU
# against the CPU, and what they refuse. The last line of a run is `state <digest of all weights and
# optimizer state>`.

# digest PROGRAM ARGUMENTS...: of a run, and the last loss that it shows; empty if it failed (its
# messages are in $W/err).
digest() {
    state_of "$@" --threads 1 </dev/null
    [ "$ended" != 0 ] || grep -o ' loss [0-9.]*' "$W/err" | tail -1
}
# on_cpu PROGRAM ARGUMENTS...: the digest of the CPU, which has no --graph: that of the program, or,
# where $plain is a folder with dlrm and gpt, of those, which have the same bits sooner than a
# program of the emulator.
on_cpu() {
    program=$1
    shift
    [ -z "$plain" ] || program=$plain/$(basename "$program" | sed 's/^emulated_//; s/_nccl$//')
    digest "$program" $(echo "$*" | sed 's/--graph off//')
}
# agree PROGRAM ARGUMENTS...: the program has one digest on the CPU and on the device.
agree() {
    there=$(digest "$@" --device cuda --exact)
    [ -n "$there" ] || echo "$* --device cuda --exact: $(tail -2 "$W/err")"
    same "$*: CPU and GPU" "$(on_cpu "$@")" "$there"
}
# refused LABEL TEXT PROGRAM ARGUMENTS...: exits non-zero by itself, says TEXT on stderr, prints no
# digest.
refused() {
    label=$1 text=$2
    shift 2
    "$@" >"$W/out" 2>"$W/err" </dev/null
    status=$?
    if [ $status = 0 ] || [ $status -ge 124 ]; then
        fail "$label: exit status $status"
    elif grep -q '^state' "$W/out"; then
        fail "$label: printed a digest"
    elif ! grep -q -- "$text" "$W/err"; then
        fail "$label: no '$text' in: $(tail -3 "$W/err" | tr '\n' ' ')"
    else
        pass
    fi
}

# ranks_agree PROGRAM ARGUMENTS... -- RANKS...: several ranks, each with a device, have the digest
# of one on the CPU.
ranks_agree() {
    one=
    while [ "$1" != -- ]; do
        one="$one $1"
        shift
    done
    shift
    there=$(digest $one "$@" --device cuda --exact)
    [ -n "$there" ] || echo "$one $* --device cuda --exact: $(tail -2 "$W/err")"
    same "$one: one rank on the CPU, on devices $*" "$(on_cpu $one)" "$there"
}

# dlrm_agrees PROGRAM SAMPLES BATCH, gpt_agrees PROGRAM TEXT STEPS: optimizers, dtypes, leaves,
# norms, micro-batches; steps as graphs (the default) and not. dlrm_ranks_agree, gpt_ranks_agree,
# alike: plans, wires, ways to shard.
dlrm_agrees() {
    model="--synthetic $2 --batch $3 --dim 8 --bottom 13-24-8 --top 24-1 --rows 300 --seed 3"
    while read -r options; do
        agree "$1" $model $options
    done <<END
--optimizer adagrad --repro-shards 1 --graph off
--optimizer adam --repro-shards 4 --schedule cosine --warmup 1
--optimizer sgd --repro-shards 4 --rows-dtype bf16
--optimizer adam --repro-shards 4 --clip-norm 0.05
--optimizer adamw --rows-dtype f16 --weight-decay 0.01 --repro-shards 1
--optimizer lamb --repro-shards 4 --rows-dtype i8
--optimizer adagrad --repro-shards 4 --micro-batches 2 --clip-norm 0.02 --row-buckets 2
--optimizer adagrad --repro-shards 4 --dtype bf16
--model dcnv2 --cross 2x5 --optimizer adam --repro-shards 4
--model dcnv2 --cross 2 --dtype bf16 --repro-shards 16
--model wukong
--model wukong --dtype bf16 --towers 3 --repro-shards 4
--towers 4 --repro-shards 4
--dropout 0.3 --dtype bf16 --repro-shards 4
--top 24-2 --tasks 1,0.5 --window 90 --dropout 0.1 --repro-shards 2
--optimizer adam --repro-shards 4 --tier $W/rows --memory 6M --rows 3000
END
    for kind in 'lr --optimizer sgd --dtype bf16' 'fm --dim 17 --micro-batches 2' \
        'ffm --dim 3 --dtype bf16' 'deepfm --dim 8 --dtype bf16' 'deepfm --dim 5 --tasks 1,0.5'; do
        agree "$1" --model $kind --synthetic $2 --batch $3 --rows 300 --repro-shards 4
    done
}
# differ NAME A B: both are there, and differ.
differ() {
    if [ -n "$2" ] && [ -n "$3" ] && [ "$2" != "$3" ]; then
        pass
    else
        fail "$1: '$2' and '$3', which should differ: $(tail -2 "$W/err" | tr '\n' ' ')"
    fi
}
# fast_agrees PROGRAM ARGUMENTS...: without --exact, too, any number of ranks ($fast_ranks) has the
# bits of one, and they are not those of --exact, nor those of TF32.
fast_ranks='2 3 4' plain=
fast_agrees() {
    one=$(digest "$@" --device cuda)
    [ -n "$one" ] || echo "$* --device cuda: $(tail -2 "$W/err")"
    for ranks in $fast_ranks; do
        same "$*: one rank and $ranks, without --exact" "$one" \
            "$(digest "$@" --device cuda --ranks $ranks)"
    done
    differ "$*: with --exact and without" "$one" "$(digest "$@" --device cuda --exact)"
    differ "$*: with --tf32 and without" "$one" "$(digest "$@" --device cuda --tf32)"
}
dlrm_ranks_agree() {
    model="--synthetic $2 --batch $3 --dim 16 --bottom 13-24-16 --top 24-1 --rows 200 --seed 3"
    model="$model --repro-shards 4"
    nodes="--ranks 4 --nodes 2 --plan twrw"
    while read -r options; do
        ranks_agree "$1" $model $options
    done <<END
--optimizer adam --clip-norm 0.05 --micro-batches 2 -- --ranks 3 --plan rw --dense-shard full
--optimizer adagrad --rows-dtype bf16 -- $nodes --pipeline off --dense-shard zero1
--optimizer adagrad --wire-forward f16 --wire-backward bf16 -- --ranks 2 --plan dp
--optimizer adagrad --dtype bf16 -- --ranks 3 --dense-shard full
--model dcnv2 --cross 2x5 -- --ranks 3 --plan rw --dense-shard full
--towers 4 -- --ranks 4 --nodes 2
END
    ranks_agree "$1" --synthetic $2 --batch $3 --rows 200 --repro-shards 4 --model deepfm -- \
        --ranks 3 --plan cw --dense-shard full
}
gpt_ranks_agree() {
    model="--data $2 --steps $3 --layers 1 --heads 2 --width 32 --context 16 --batch 4 --warmup 2"
    model="$model --sample 0 --repro-shards 4"
    while read -r options; do
        ranks_agree "$1" $model $options
    done <<END
-- --ranks 3 --shard full
--graph off -- --ranks 2 --shard zero2
--accumulate 2 --dtype bf16 -- --ranks 4 --shard hybrid
END
}
gpt_agrees() {
    model="--data $2 --steps $3 --layers 2 --heads 2 --width 32 --context 16 --batch 4 --warmup 2"
    model="$model --sample 0"
    while read -r options; do
        agree "$1" $model $options
    done <<END
--repro-shards 1 --eval-every 1
--repro-shards 1 --graph off
--repro-shards 4 --accumulate 2 --recompute
--repro-shards 4 --shard none --dtype bf16 --clip 0
--repro-shards 4 --products bf16
END
}
