# refused.sh: to be read with `.` after digests.sh: what programs that nvcc linked say where there
# is no GPU.
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    skip "CUDA without a GPU: there is one"
else
    for name in dlrm_cuda gpt_cuda dlrm_nccl; do
        if [ -x "$B/$name" ]; then
            refused "$name without a GPU" "NVIDIA driver\|no CUDA-capable\|no GPU" "$B/$name" \
                $([ $name = gpt_cuda ] || echo --synthetic 60) --device cuda
        else
            skip "$name without a GPU: make cuda builds $B/$name"
        fi
    done
    if "$B/bench/cuda" --quick >"$W/out" 2>&1; then
        fail "the bench runs without a GPU"
    else
        pass
    fi
fi
