#!/bin/sh
# gpu.sh cuda|test-cuda|bench-cuda: what the targets of that name in the Makefile do.
#
# cuda        neo_cuda.cuh under nvcc, all warnings errors (tests/cuda/nvcc.sh); build/dlrm_cuda,
#             build/gpt_cuda and build/bench/cuda for the GPUs of CUDA_ARCH. Runs on a machine
#             without a GPU; without nvcc it says so
# test-cuda   everything for the GPU at hand, in build/on_gpu, and all tests of it; ends with the
#             totals
# bench-cuda  bench/cuda/ops.c and its peers in bench/cuda/torch_bags.py; writes
#             bench/results/cuda-<GPU>.md

B=${B:-build}
MAKE=${MAKE:-make}
NVCC=${NVCC:-nvcc}
JOBS=${JOBS:-2}
PYTHON=${PYTHON:-python3}
export NVCC

have() { command -v "$1" >/dev/null 2>&1; }
# give_up TEXT: says why nothing was tested, and fails.
give_up() {
    echo "FAILED $target: $1"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
need_gpu() {
    have "$NVCC" || give_up \
        "it needs nvcc: install the CUDA toolkit, or give NVCC=/usr/local/cuda/bin/nvcc"
    nvidia-smi -L 2>/dev/null | grep -q '^GPU' || give_up \
        "there is no GPU: nvidia-smi -L lists none"
    B=$B/on_gpu
    export B
}
build() {
    "$MAKE" --no-print-directory -j"$JOBS" B="$B" CUDA_ARCH=-arch=native "$@" || give_up \
        "it does not compile"
}
# of_gpu FIELD: what nvidia-smi knows of the first GPU.
of_gpu() { nvidia-smi -i 0 --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -1; }

# table FILE: rows of the lines `bench <name> value=<x> unit=<u> ceiling=<percent> [peer=<name>
# ratio=<x>] [spread=<percent>]`.
table() {
    awk 'BEGIN {
        goal["bags.forward.uniform.d128"] = 85
        goal["bags.backward.uniform.d128"] = 70
        print "| figure | value | share of copy bandwidth, % | goal, % | against | spread, % |"
        print "|---|---|---|---|---|---|"
    }
    $1 == "bench" && $3 ~ /^value=/ {
        split("", f)
        for (i = 3; i <= NF; i++) {
            at = index($i, "=")
            f[substr($i, 1, at - 1)] = substr($i, at + 1)
        }
        g = $2 in goal ? goal[$2] : ""
        share = f["ceiling"] == "none" ? "" : f["ceiling"]
        if (g != "" && f["ceiling"] != "none") g = g (share + 0 >= g + 0 ? ", met" : ", missed")
        if (f["value"] + 0 >= 1000) f["value"] = sprintf("%.0f", f["value"])
        against = f["peer"] == "" ? "" : f["peer"] " " f["ratio"] "x"
        print "| " $2 " | " f["value"] " " f["unit"] " | " share " | " g " | " against \
            " | " f["spread"] " |"
    }' "$1"
}
write_results() {
    gpu=$(of_gpu name)
    out=bench/results/cuda-$(echo "$gpu" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-').md
    dirty=$(git status --porcelain --untracked-files=no 2>/dev/null | head -1)
    mkdir -p bench/results
    {
        echo "# $gpu"
        echo
        echo "By \`make bench-cuda\`; the comment at the top of bench/cuda/ops.c says what each" \
            "figure counts. Medians of 21."
        echo
        cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -1)
        echo "- machine: $(uname -sm), $(nproc 2>/dev/null) x $cpu"
        echo "- GPU: $gpu, $(of_gpu memory.total), clock up to $(of_gpu clocks.max.sm)," \
            "power limit $(of_gpu power.limit)"
        cuda=$("$NVCC" --version | sed -n 's/.*release \([^,]*\),.*/CUDA \1/p')
        echo "- driver $(of_gpu driver_version), $cuda"
        commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
        echo "- $(date -u +%Y-%m-%d), commit $commit${dirty:+, changed}"
        [ "$1" = 0 ] || echo "- the bench FAILED: see its output"
        echo
        table "$2"
        sed -n 's/^# skipped /Skipped: /p' "$2" | sed 's/^/\n/'
    } >"$out"
    echo "written: $out"
}

target=$1
case $target in
cuda)
    if have "$NVCC"; then
        "$MAKE" --no-print-directory -j"$JOBS" B="$B" cuda-programs || give_up "it does not compile"
    else
        echo "skipped build/dlrm_cuda, build/gpt_cuda, build/bench/cuda: there is no $NVCC"
    fi
    sh tests/run.sh tests/cuda/nvcc.sh tests/cuda/programs.sh
    ;;
test-cuda)
    need_gpu
    build gpu-programs
    TEST_TIMEOUT=${TEST_TIMEOUT:-600} sh tests/run.sh "$B"/tests/cuda/*_gpu tests/cuda/programs.sh
    ;;
bench-cuda)
    need_gpu
    build gpu-bench
    lines=$B/cuda_bench.txt json=$B/cuda_bench.jsonl
    rm -f "$json"
    "$B/bench/cuda" --json "$json" >"$lines" 2>&1
    status=$?
    if have "$PYTHON"; then
        "$PYTHON" bench/cuda/torch_bags.py "$json" >>"$lines" 2>&1 || echo \
            "# bench/cuda/torch_bags.py failed" >>"$lines"
    else
        echo "# skipped torch: there is no $PYTHON" >>"$lines"
    fi
    cat "$lines"
    write_results $status "$lines"
    exit $status
    ;;
*)
    echo "usage: gpu.sh cuda|test-cuda|bench-cuda"
    exit 2
    ;;
esac
