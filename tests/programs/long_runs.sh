#!/bin/sh
# long_runs.sh: what a run of days needs of dlrm and gpt: a signal ends it after a step, saved, and it goes on with the
# same bits, as threads and under mpirun.

B=${B:-build}
. tests/harness.sh
W=$B/tmp/long_runs
rm -rf "$W"
mkdir -p "$W"
D=$B/dlrm G=$B/gpt
if [ ! -x "$D" ] || [ ! -x "$G" ]; then
    fail "$D or $G is not built"
    finish programs/long_runs
    exit
fi
samples=40000
[ -z "$SANITIZER" ] || samples=8000
small="--dim 8 --bottom 13-24-8 --top 24-1 --rows 400 --seed 3 --batch 96 --repro-shards 8"
long="--synthetic $samples --epochs 2 --shuffle 1000 --optimizer adam --lr 0.002 $small"

# says LABEL TEXT: the last run's stderr has it.
says() {
    if grep -q -- "$2" "$W/err"; then pass; else fail "$1: no '$2' in: $(tail -3 "$W/err" | tr '\n' ' ')"; fi
}
# stopped SIGNAL FOLDER COMMAND...: the command, signalled once FOLDER has a checkpoint; its exit status is in $status.
stopped() {
    signal=$1 folder=$2
    shift 2
    timeout 120 "$@" >"$W/out" 2>"$W/err" </dev/null &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! ls "$folder"/step-*/manifest.json >/dev/null 2>&1; do sleep 0.02; done
    kill -"$signal" $pid 2>/dev/null
    wait $pid
    status=$?
}

# ---- a signal stops after a step, and the run goes on from there ----

whole=$(state_of $D $long)
for ranks in 1 3; do
    stopped TERM "$W/dlrm_$ranks" $D $long --ranks $ranks --checkpoint "$W/dlrm_$ranks" --every 20 --log "$W/log" --report "$W/report"
    same "SIGTERM, $ranks ranks: exit status" "$status" 143
    says "SIGTERM, $ranks ranks" "stopped at step [0-9]*; saved to $W/dlrm_$ranks; go on with --resume"
    step=$(sed -n 's/.*stopped at step \([0-9]*\);.*/\1/p' "$W/err")
    if [ -d "$W/dlrm_$ranks/step-$(printf '%012d' "$step")" ]; then pass; else fail "no checkpoint of step $step: $(ls "$W/dlrm_$ranks")"; fi
    if grep -q '^state' "$W/out"; then fail "a stopped run printed a digest"; else pass; fi
    if grep -q "\"step\":$step," "$W/log" && grep -q '<svg' "$W/report"; then pass; else fail "a stopped run: no log or report"; fi
    same "SIGTERM, $ranks ranks: it goes on" "$(state_of $D $long --checkpoint "$W/dlrm_$ranks" --resume)" "$whole"
done
gpt="--layers 2 --heads 2 --width 32 --context 16 --batch 8 --steps 150 --sample 0 --repro-shards 8"
whole_gpt=$(state_of $G $gpt)
stopped INT "$W/gpt" $G $gpt --ranks 2 --checkpoint "$W/gpt" --every 10
same "gpt, SIGINT: exit status" "$status" 130
says "gpt, SIGINT" "stopped at step [0-9]*; saved to $W/gpt; go on with --resume"
same "gpt, SIGINT: it goes on" "$(state_of $G $gpt --checkpoint "$W/gpt" --resume)" "$whole_gpt"

# The second signal ends it at once: here no step ever ends, as no line comes.
mkfifo "$W/fifo"
sleep 60 >"$W/fifo" &
feeder=$!
$D --data - $small <"$W/fifo" >"$W/out" 2>"$W/err" &
pid=$!
sleep 1
kill -INT $pid
sleep 0.5
if kill -0 $pid 2>/dev/null; then pass; else fail "one signal in the middle of a step ends the run: $(cat "$W/err")"; fi
kill -TERM $pid
wait $pid
same "the second signal" "$?" 143
kill $feeder

# Under mpirun: the signal comes to one process, and all stop.
mpi() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp timeout 120 mpirun $over -n 2 "$@"
}
over=
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then over=--oversubscribe; fi
if [ -x "${D}_mpi" ] && have mpirun; then
    mpi sh -c 'echo $$ >"$0"; exec "$@"' "$W/pid" ${D}_mpi $long --checkpoint "$W/mpi" --every 20 >"$W/out" 2>"$W/err" </dev/null &
    launcher=$!
    while kill -0 $launcher 2>/dev/null && ! ls "$W"/mpi/step-*/manifest.json >/dev/null 2>&1; do sleep 0.02; done
    kill -TERM "$(cat "$W/pid")"
    wait $launcher
    says "mpirun" "stopped at step [0-9]*; saved to $W/mpi; go on with --resume"
    same "mpirun: it goes on" "$(state_of $D $long --checkpoint "$W/mpi" --resume)" "$whole"
else
    skip "a signal under mpirun: ${D}_mpi is not built, or there is no mpirun"
fi

rm -rf "$W"
finish programs/long_runs
