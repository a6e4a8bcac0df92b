#!/bin/sh
# mpi.sh: neo_comm.h over every MPI of this machine (OpenMPI and MPICH side by side, as Debian
# installs them, or the plain mpicc): tests/comm/collectives.c with 1 to 4 ranks, and once with sums
# that take many segments; groups.c, where bytes are counted by MPI's profiling interface too;
# data.c, also with numbers piped into mpirun (as many as MPICH's takes); tests/fsdp/grid.c and
# tests/fsdp/state.c; the digest of examples/allreduce.c, the same for 1, 2, 4 and 8 ranks as
# threads and over each MPI; and a call that every rank refuses. examples/train/dlrm: the digest of
# one rank under plans, from files and standard input; errors that are said once; a process that is
# killed, and the job resumed as threads. examples/train/gpt: the digest of one rank, however it
# shards. The examples have neo's assertions on, too. Without NEO_FULL over the first MPI alone, and
# as starting jobs takes most of the time, every other run of the examples. With NEO_FULL=1 over the
# last, 8 ranks too, and the examples as `make mpi` builds them; with all over each MPI, on 1 to 8
# ranks, at all sizes.

B=${B:-build}
MAKE=${MAKE:-make}
. tests/harness.sh
W=$B/mpi
mkdir -p "$W" "$B/logs"
mpi_folder

kinds=
for kind in openmpi mpich; do
    have mpicc.$kind && have mpirun.$kind || continue
    case $NEO_FULL in
    '') [ -n "$kinds" ] || kinds=.$kind ;;
    all) kinds="$kinds .$kind" ;;
    *) kinds=.$kind ;;
    esac
done
if [ -z "$kinds" ] && have mpicc && have mpirun; then kinds=/; fi
if [ -z "$kinds" ]; then
    skip "MPI: no mpicc (Debian: libopenmpi-dev openmpi-bin, libmpich-dev mpich)"
    finish comm/mpi
    exit
fi

# Ranks, program and its argument of each run.
runs='1 comm/collectives 1000
3 comm/collectives 1000
4 comm/collectives 1000
2 comm/collectives 100000
2 comm/groups
4 comm/groups
1 comm/data
3 comm/data
2 comm/trace
4 shard/placements
3 fsdp/grid
3 fsdp/state'
case $NEO_FULL in
'') ;;
all)
    runs=$(for n in 1 2 3 4 5 6 7 8; do printf '%s\n' "$n comm/collectives 10000" \
        "$n comm/groups" "$n comm/data" "$n shard/placements" "$n fsdp/grid" "$n fsdp/state"; done)
    runs=$(printf '%s\n' "$runs" "2 comm/collectives 1000000" "4 comm/collectives 1000000") ;;
*) runs=$(printf '%s\n' "$runs" "2 comm/collectives 1000" "8 comm/collectives 1000" \
    "1 comm/groups" "8 comm/groups" "4 comm/data" "8 comm/data" "2 shard/placements" \
    "4 fsdp/grid" "2 comm/collectives 1000000") ;;
esac

# some: whether this turn of a list of runs is taken: each with NEO_FULL, else those of odd number.
taken=0
some() {
    taken=$((taken + 1))
    [ -n "$NEO_FULL" ] || [ $((taken % 2)) = 1 ]
}

# plan --calibrate measures the links between ranks, and by them plans as by such a cluster file.
links_over() {
    printf 'batch 100\ntable a 100x16 2\n' >"$W/links.model"
    echo "ranks 2 2" >"$W/links.cluster"
    start 2 "$E/plan_mpi" "$W/links.model" "$W/links.cluster" --calibrate --set threads=1
    sed -n '/^memory_bandwidth/,$p' "$W/out" >>"$W/links.cluster"
    if grep -qE '^local [0-9.e+]+ [0-9.]+ # quartiles' "$W/links.cluster" &&
        [ "$(grep -cE '^local_(exchange|reduce)( [0-9.e+]+){4}$' "$W/links.cluster")" = 2 ] &&
        ! grep -q '^cross' "$W/links.cluster"; then
        pass
    else
        fail "plan --calibrate, 2 ranks of $name: $(tail -3 "$W/out")"
    fi
    sed '/^memory_bandwidth/,$d' "$W/out" >"$W/links.plan"
    "$E/plan_mpi" "$W/links.model" "$W/links.cluster" >"$W/out" 2>&1
    same "plan by links of $name" "$(cat "$W/out")" "$(cat "$W/links.plan")"
}

# start RANKS PROGRAM...: under the MPI of $suffix, with its option $over; what it says is in
# $W/out. The larger grids of a program run over threads.
quick="-u NEO_FULL"
[ "$NEO_FULL" != all ] || quick=
start() {
    ranks=$1
    shift
    timeout -k 10 900 env $quick mpirun$suffix $over -n "$ranks" "$@" >"$W/out" 2>&1 \
        </dev/null
}

"$MAKE" --no-print-directory "$B/allreduce" "$B/ranks" "$B/dlrm" "$B/gpt" "$B/tests/data/make_npy" \
    >"$B/logs/mpi.build" 2>&1
for n in 1 2 4 8; do
    digest=$(timeout 900 "$B/allreduce" --ranks $n 2>&1 | grep '^state')
    if [ $n = 1 ]; then expected=$digest; fi
    same "allreduce, $n threads" "$digest" "$expected"
done
for n in 1 3 8; do # on 2: readme.sh
    digest=$(timeout 900 "$B/ranks" --ranks $n 2>&1 | grep '^state')
    if [ $n = 1 ]; then expected_ranks=$digest; fi
    same "ranks, $n threads" "$digest" "$expected_ranks"
done

# dlrm: digests of one rank, as threads. The lines are as many as MPICH's mpirun takes on standard
# input.
"$B/tests/data/make_npy" "$W/day_" 300 || fail "make_npy"
lines=$W/day_lines.tsv
awk -F '\t' -v OFS='\t' 'NR == 100 { $3 = "abc" } { print }' "$lines" >"$W/bad.tsv"
layers="--bottom 13-24-32 --top 24-1 --dim 32 --rows 400 --repro-shards 8"
synthetic="--synthetic 600 --batch 100 $layers"
criteo="--format criteo --batch 64 $layers"
long="--synthetic 20000 --epochs 5000 --batch 50 $layers" # never at its end
state() { grep '^state' "$1"; }
"$B/dlrm" $synthetic >"$W/dlrm_synthetic" 2>"$W/err" &&
    "$B/dlrm" --data "$lines" --test "$lines" $criteo >"$W/dlrm_criteo" 2>"$W/err" &&
    "$B/dlrm" $synthetic --wire-forward i8 --wire-backward bf16 >"$W/dlrm_wire" 2>"$W/err" &&
    "$B/dlrm" $synthetic --clip-norm 0.05 >"$W/dlrm_clip" 2>"$W/err" &&
    "$B/dlrm" $synthetic --ranks 4 --replicas 2 --sync-every 4 >"$W/dlrm_apart" 2>"$W/err" ||
    fail "dlrm: $(tail -1 "$W/err")"

# dlrm_over: the trainer over the MPI of $suffix.
dlrm_over() {
    taken=0
    for plan in "2 --plan cw --pipeline off" "1 --plan auto" "3 --plan rw" \
        "4 --ranks 4 --nodes 4 --plan dp" "8 --ranks 8 --nodes 2 --plan twrw" \
        "4 --ranks 4 --nodes 2 --plan grid" "4 --replicas 2 --plan rw"; do
        some || continue
        start ${plan%% *} "$E/dlrm_mpi" $synthetic ${plan#* }
        same "dlrm, ranks and plan $plan, of $name" "$(state "$W/out")" \
            "$(state "$W/dlrm_synthetic")"
    done
    start 4 "$E/dlrm_mpi" $synthetic --wire-forward i8 --wire-backward bf16 --plan rw
    same "dlrm, wires, of $name" "$(state "$W/out")" "$(state "$W/dlrm_wire")"
    start 4 "$E/dlrm_mpi" $synthetic --replicas 2 --sync-every 4
    same "dlrm, replicas apart, of $name" "$(state "$W/out")" "$(state "$W/dlrm_apart")"
    taken=0
    for plan in "2 --plan dp --dense-shard zero1" "4 --plan cw --dense-shard full" \
        "4 --ranks 4 --nodes 2 --plan grid"; do
        some || continue
        start ${plan%% *} "$E/dlrm_mpi" $synthetic --clip-norm 0.05 ${plan#* }
        same "dlrm, clip-norm, ranks and plan $plan, of $name" "$(state "$W/out")" \
            "$(state "$W/dlrm_clip")"
    done
    start 4 "$E/dlrm_mpi" --data "$lines" --test "$lines" $criteo
    same "dlrm, lines, of $name" "$(grep -E '^state' "$W/out")" "$(state "$W/dlrm_criteo")"
    same "dlrm, figures, of $name" "$(grep -o '^test.*ne=[^ ]*' "$W/out")" \
        "$(grep -o '^test.*ne=[^ ]*' "$W/dlrm_criteo")"
    head -200 "$lines" | timeout 900 mpirun$suffix $over -n 3 "$E/dlrm_mpi" --data - $criteo \
        >"$W/out" 2>&1
    same "dlrm, standard input, of $name" "$(state "$W/out")" \
        "$(head -200 "$lines" | "$B/dlrm" --data - $criteo 2>&1 | grep '^state')"
    # LABEL, what is said once, and the options.
    taken=0
    while IFS='|' read -r label text options; do
        some || continue
        start 4 "$E/dlrm_mpi" $options
        status=$?
        if [ $status != 0 ] && [ $status -lt 124 ] && [ "$(grep -c -- "$text" "$W/out")" = 1 ]; then
            pass
        else
            fail "$name: dlrm, $label: status $status: $(grep dlrm: "$W/out" | head -3)"
        fi
    done <<END
a bad line|bad.tsv:100:6: I2|--data $W/bad.tsv $criteo
a missing file|missing.tsv: cannot open|--data $W/missing.tsv $criteo
ranks of another number|has started 4|$synthetic --ranks 3
an option|--nosuch: no such option|$synthetic --nosuch
a full disk|/dev/full|$synthetic --predict /dev/full
a plan|--optimizer nosuch|$synthetic --optimizer nosuch
END
}

# gpt_over: the GPT over the MPI of $suffix.
head -c 60000 examples/data/shakespeare/input.txt >"$W/text"
gpt="--data $W/text --layers 2 --heads 2 --width 32 --context 16 --batch 6 --steps 6"
gpt="$gpt --repro-shards 8 --threads 1 --sample 20"
"$B/gpt" $gpt >"$W/gpt" 2>"$W/err" || fail "gpt: $(tail -1 "$W/err")"
gpt_over() {
    taken=0
    for shard in "2 --shard none" "1 --shard full" "4 --shard full --slots 1" \
        "3 --shard zero1 --recompute" "4 --shard hybrid" "8 --shard zero2"; do
        some || continue
        start ${shard%% *} "$E/gpt_mpi" $gpt ${shard#* }
        same "gpt, ranks and shard $shard, of $name" "$(grep -E '^(val|state)' "$W/out")" \
            "$(grep -E '^(val|state)' "$W/gpt")"
    done
    start 4 "$E/gpt_mpi" $gpt --data "$W/missing"
    same "gpt, a missing file, of $name" "$(grep -c 'missing: cannot open' "$W/out")" 1
}

# The process of one rank, told by an argument of its own.
process_of() {
    for p in /proc/[0-9]*; do
        if [ "$(cat "$p/comm" 2>/dev/null)" = dlrm_mpi ] && tr '\0' ' ' <"$p/cmdline" 2>/dev/null \
            | grep -q "$1 "; then
            echo "${p#/proc/}"
            return
        fi
    done
}
# dlrm_killed: a process is lost in the middle of a run; nothing hangs, and threads go on from the
# checkpoint.
dlrm_killed() {
    rm -rf "$W/killed_$name"
    timeout 900 mpirun$suffix $over -n 4 "$E/dlrm_mpi" $long --checkpoint "$W/killed_$name" \
        --every 20 >"$W/out" 2>&1 </dev/null &
    job=$!
    while kill -0 $job 2>/dev/null &&
        ! ls "$W/killed_$name"/step-*/manifest.json >/dev/null 2>&1; do
        sleep 0.1
    done
    kill -9 "$(process_of "$W/killed_$name")"
    wait $job
    status=$?
    if [ $status != 0 ] && [ $status != 124 ]; then
        pass
    else
        fail "$name: dlrm, a killed process: status $status: $(tail -3 "$W/out")"
    fi
    step=$(ls -d "$W/killed_$name"/step-*/manifest.json | tail -1 | sed \
        's/.*step-0*\([0-9]*\).*/\1/')
    "$B/dlrm" $long --epochs $((step / 400 + 1)) --checkpoint "$W/killed_$name" --ranks 2 \
        --plan cw --resume >"$W/resumed" 2>"$W/err"
    same "dlrm, resumed after $name" "$(state "$W/resumed")" \
        "$("$B/dlrm" $long --epochs $((step / 400 + 1)) 2>"$W/err" | grep '^state')"
}

# Device memory, of the emulation, by way of pinned memory.
devices_over() {
    if [ ! -f "$B/tests/emulated_cuda.o" ]; then
        skip "$name: device memory: no emulated device was built"
        return
    fi
    cp -p "$B"/tests/emulated_neo.o "$B"/tests/emulated_neo_comm.o "$B"/tests/emulated_neo_fsdp.o \
        "$B"/tests/emulated_cuda.o "$B"/tests/emulated_controls.o "$P/tests"
    if ! "$MAKE" --no-print-directory B="$P" MPICC="mpicc$suffix" "$P/tests/cuda/comm_mpi" \
        >>"$B/logs/mpi_$name.build" 2>&1; then
        fail "$name: cuda/comm does not build (see $B/logs/mpi_$name.build)"
        return
    fi
    for n in 2 3; do # the launchers' own libraries lose memory
        ASAN_OPTIONS=detect_leaks=0 start $n "$P/tests/cuda/comm_mpi"
        status=$?
        if [ $status = 0 ] && grep -qE "^cuda/comm: [1-9][0-9]* passed, 0 failed" "$W/out"; then
            pass
        else
            fail "$name: cuda/comm on $n ranks: status $status: $(grep -v '^$' "$W/out" | head -6)"
        fi
    done
}

for kind in $kinds; do
    suffix=${kind#/}
    name=${suffix#.}
    name=${name:-mpi}
    over=
    if mpirun$suffix --version 2>/dev/null | grep -qiE 'open.?mpi|openrte'; then
        over=--oversubscribe
    fi
    P=$W/$name E=$W/$name/tests level=-O0 # the work is in the objects that are copied
    [ -z "$NEO_FULL" ] || E=$P level=-O1
    mkdir -p "$P/tests"
    for part in neo neo_comm neo_fsdp checked; do cp -p "$B/tests/$part.o" "$P/tests/"; done
    [ -z "$NEO_FULL" ] || cp -p "$B/neo.o" "$B/neo_fsdp.o" "$P/"
    if ! "$MAKE" --no-print-directory ${JOBS:+-j$JOBS} B="$P" MPICC="mpicc$suffix" CFLAGS=$level \
        "$E/allreduce_mpi" "$E/ranks_mpi" "$E/dlrm_mpi" "$E/gpt_mpi" \
        "$P/tests/comm/collectives_mpi" "$P/tests/comm/groups_mpi" "$P/tests/comm/data_mpi" \
        "$P/tests/comm/trace_mpi" "$P/tests/shard/placements_mpi" \
        "$P/tests/fsdp/grid_mpi" "$P/tests/fsdp/state_mpi" ${NEO_FULL:+"$P/bench/comm_mpi"} \
        ${NEO_FULL:+"$E/plan_mpi"} >"$B/logs/mpi_$name.build" 2>&1; then
        fail "$name: does not build (see $B/logs/mpi_$name.build)"
        continue
    fi
    while read -r n program most; do
        start "$n" "$P/tests/${program}_mpi" $most
        status=$?
        if [ $status = 0 ] && grep -qE "^$program: [1-9][0-9]* passed, 0 failed" "$W/out"; then
            pass
        else
            fail "$name: $program $most on $n ranks: status $status"
            grep -v '^$' "$W/out" | head -6
        fi
    done <<END
$runs
END
    for n in 1 3; do # of a pipe: what rank 0 gets goes to all
        digest=$(seq 0 9999 | timeout 900 mpirun$suffix -n $n $over "$P/tests/comm/data_mpi" stdin \
            2>&1 | grep '^stdin')
        same "standard input, $n ranks of $name" "$digest" 'stdin: 10000 samples, 333333330000'
    done
    taken=0
    for n in 2 1 8 4; do
        some || continue
        start $n "$E/allreduce_mpi"
        same "allreduce, $n ranks of $name" "$(grep '^state' "$W/out")" "$expected"
    done
    taken=0
    for n in 3 2; do
        some || continue
        start $n "$E/ranks_mpi"
        same "ranks, $n ranks of $name" "$(grep '^state' "$W/out")" "$expected_ranks"
    done
    [ -z "$NEO_FULL" ] || links_over
    # More ranks than leaves: an error, and none waits for another.
    start 9 "$E/allreduce_mpi"
    status=$?
    if [ $status != 0 ] && [ $status -lt 124 ] &&
        grep -q 'repro_shards is 8, less than the 9 ranks' "$W/out"; then
        pass
    else
        fail "$name: 9 ranks on 8 leaves: status $status: $(head -3 "$W/out")"
    fi
    dlrm_over
    gpt_over
    dlrm_killed
    devices_over
done
finish comm/mpi
