#!/bin/sh
# programs.sh: programs that nvcc linked (make cuda): with a GPU, dlrm and gpt have there the
# digests of the CPU, and compute-sanitizer, where it is installed, finds nothing; without one they
# say so.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/cuda_programs
rm -rf "$W"
mkdir -p "$W"
. tests/cuda/digests.sh

dlrm=$B/dlrm_cuda gpt=$B/gpt_cuda
if [ ! -x "$dlrm" ] || [ ! -x "$gpt" ]; then
    skip "dlrm and gpt on a GPU: there is no ${NVCC:-nvcc} that builds them"
    finish cuda/programs
    exit
fi
if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    . tests/cuda/refused.sh
    finish cuda/programs
    exit
fi

head -c 60000 examples/data/shakespeare/input.txt >"$W/text"
dlrm_agrees "$dlrm" 4100 250
gpt_agrees "$gpt" "$W/text" 20
dlrm_ranks_agree "$dlrm" 4000 250
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [ -x "$B/dlrm_nccl" ] && have mpirun && [ "$(nvidia-smi -L | grep -c '^GPU')" -ge 2 ]; then
    model="--synthetic 4000 --batch 250 --dim 16 --bottom 13-24-16 --rows 300 --repro-shards 4"
    model="$model --clip-norm 0.05"
    for options in "" "--dense-shard full --plan rw"; do
        same "dlrm over NCCL $options" "$(digest "$dlrm" $model)" \
            "$(digest mpirun -n 2 "$B/dlrm_nccl" $model $options --device cuda --exact)"
    done
else
    skip "dlrm over NCCL: it needs $B/dlrm_nccl, mpirun and two GPUs"
fi
gpt_ranks_agree "$gpt" "$W/text" 20
agree "$dlrm" --synthetic 40000 --batch 2048 --dim 64 --bottom 13-512-256-64 --top 512-256-1 \
    --repro-shards 8
agree "$gpt" --data "$W/text" --steps 5 --layers 4 --heads 4 --width 256 --context 128 --batch 8 \
    --sample 0 --repro-shards 8
agree "$dlrm" --format adult --data examples/data/adult/adult.data \
    --test examples/data/adult/adult.test --dim 8 \
    --bottom 5-32-8 --top 32-1 --epochs 1 --batch 256 --repro-shards 16
# The same bits from run to run with cuBLASLt's products, too, and on ranks that share the GPU.
fast_agrees "$dlrm" --synthetic 40000 --batch 4096 --dim 64 --bottom 13-512-256-64 --top 512-256-1
fast_agrees "$gpt" --data "$W/text" --steps 5 --layers 2 --heads 4 --width 256 --context 128 \
    --batch 16 --repro-shards 16 --sample 0
for program in "$dlrm --synthetic 4000" "$gpt --data $W/text --steps 20 --sample 0"; do
    same "$program: two runs" "$(digest $program --device cuda)" "$(digest $program --device cuda)"
done
same "dlrm with cuBLASLt's products, as graphs and not" \
    "$(digest $dlrm --synthetic 4100 --device cuda)" \
    "$(digest $dlrm --synthetic 4100 --device cuda --graph off)"
same "gpt with cuBLASLt's products, as graphs and not" \
    "$(digest $gpt --data $W/text --steps 20 --sample 0 --device cuda)" \
    "$(digest $gpt --data $W/text --steps 20 --sample 0 --device cuda --graph off)"
refused "a GPU that is not there" "ordinal is 99" "$dlrm" --synthetic 60 --device cuda:99

if have compute-sanitizer; then
    for tool in memcheck racecheck; do
        for program in "$dlrm --synthetic 300 --batch 60 --clip-norm 0.1 --repro-shards 4" \
            "$gpt --data $W/text --steps 2 --layers 1 --sample 0"; do
            if compute-sanitizer --tool $tool --error-exitcode 99 $program --device cuda \
                --exact >"$W/out" 2>&1; then
                pass
            else
                fail "$tool: $program: $(grep '=====' "$W/out" | head -8)"
            fi
        done
    done
else
    skip "compute-sanitizer is not installed"
fi
finish cuda/programs
