#!/bin/sh
# long_runs.sh: what a run of days needs of dlrm and gpt: a signal ends it after a step, saved, and
# it goes on with the same bits, as threads and under mpirun; the best model of all evaluations is
# kept, and training stops when none is better; a run that has diverged ends, and saves nothing.

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
    if grep -q -- "$2" "$W/err"; then
        pass
    else
        fail "$1: no '$2' in: $(tail -3 "$W/err" | tr '\n' ' ')"
    fi
}
# stopped SIGNAL FOLDER COMMAND...: the command, signalled once FOLDER has a checkpoint; its exit
# status is in $status. timeout hands the signal on twice at the same time, which must not count as
# two. One that is over before is run again.
stopped() {
    signal=$1 folder=$2 status=0 tries=0
    shift 2
    while [ $status = 0 ] && [ $tries -lt 5 ]; do
        tries=$((tries + 1))
        rm -rf "$folder"
        timeout 900 "$@" >"$W/out" 2>"$W/err" </dev/null &
        pid=$!
        while kill -0 $pid 2>/dev/null && ! ls "$folder"/step-*/manifest.json >/dev/null 2>&1; do
            sleep 0.02
        done
        kill -"$signal" $pid 2>/dev/null
        wait $pid
        status=$?
    done
}

# ---- a signal stops after a step, and the run goes on from there ----

whole=$(state_of $D $long)
for ranks in 1 3; do
    stopped TERM "$W/dlrm_$ranks" $D $long --ranks $ranks --checkpoint "$W/dlrm_$ranks" --every \
        20 --log "$W/log" --log-every 1 --report "$W/report"
    same "SIGTERM, $ranks ranks: exit status" "$status" 143
    says "SIGTERM, $ranks ranks" \
        "stopped at step [0-9]*; saved to $W/dlrm_$ranks; go on with --resume"
    step=$(sed -n 's/.*stopped at step \([0-9]*\);.*/\1/p' "$W/err")
    if [ -d "$W/dlrm_$ranks/step-$(printf '%012d' "$step")" ]; then
        pass
    else
        fail "no checkpoint of step $step: $(ls "$W/dlrm_$ranks")"
    fi
    if grep -q '^state' "$W/out"; then fail "a stopped run printed a digest"; else pass; fi
    if grep -q "\"step\":$step," "$W/log" && grep -q '<svg' "$W/report"; then
        pass
    else
        fail "a stopped run: no log or report"
    fi
    same "SIGTERM, $ranks ranks: it goes on" \
        "$(state_of $D $long --checkpoint "$W/dlrm_$ranks" --resume)" "$whole"
done
gpt="--layers 2 --heads 2 --width 32 --context 16 --batch 8 --steps 150 --sample 0 --repro-shards 8"
whole_gpt=$(state_of $G $gpt)
stopped INT "$W/gpt" $G $gpt --ranks 2 --checkpoint "$W/gpt" --every 10
same "gpt, SIGINT: exit status" "$status" 130
says "gpt, SIGINT" "stopped at step [0-9]*; saved to $W/gpt; go on with --resume"
same "gpt, SIGINT: it goes on" "$(state_of $G $gpt --checkpoint "$W/gpt" --resume)" "$whole_gpt"

# catches PID: it has a handler of SIGTERM by now, or is gone; where /proc does not say, after a
# second.
catches() {
    if [ ! -r "/proc/$1/status" ]; then
        sleep 1
        return
    fi
    until grep -q '^SigCgt:.*[4-7c-f][0-9a-f]\{3\}$' "/proc/$1/status"; do
        kill -0 "$1" 2>/dev/null || return
        sleep 0.02
    done
}
# The second signal ends it at once: here no step ever ends, as no line comes.
mkfifo "$W/fifo"
sleep 3600 >"$W/fifo" &
feeder=$!
$D --data - $small <"$W/fifo" >"$W/out" 2>"$W/err" &
pid=$!
catches $pid
kill -TERM $pid
# Taken, however late; then it is another one after half a second.
while grep -q '^ShdPnd:.*[4-7c-f][0-9a-f]\{3\}$' "/proc/$pid/status" 2>/dev/null; do
    sleep 0.02
done
sleep 1.5
if kill -0 $pid 2>/dev/null; then pass; else fail \
    "one signal in the middle of a step ends the run: $(cat "$W/err")"; fi
{ kill -TERM $pid && wait $pid; } 2>/dev/null
same "the second signal" "$?" 143
kill $feeder 2>/dev/null

# Nothing is trained yet while the samples are counted: the first signal ends it. The pipe opens
# when the program reads it.
timeout 900 $D --data "$W/fifo" $small --checkpoint "$W/none" >"$W/out" 2>"$W/err" &
pid=$!
exec 7>"$W/fifo"
{ kill -TERM $pid && wait $pid; } 2>/dev/null
same "a signal while samples are counted" "$?" 143
exec 7>&-

# The validation at the end of gpt takes seconds; its checkpoint is there before.
stopped TERM "$W/gpt_end" $G --layers 4 --heads 4 --width 256 --context 16 --batch 16 --steps 1 \
    --sample 0 --ranks 2 --checkpoint "$W/gpt_end"
same "gpt, a signal in its last validation" "$status" 143
says "gpt, a signal in its last validation" 'stopped at step 1; saved to'

# Under mpirun: the signal comes to one process, and all stop.
mpi() { timeout 900 mpirun $over -n 2 "$@"; }
over=
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then over=--oversubscribe; fi
if [ -x "${D}_mpi" ] && have mpirun; then
    mpi_folder
    tries=0 status=0
    while [ $status = 0 ] && [ $tries -lt 5 ]; do # again where it was over before
        tries=$((tries + 1))
        rm -rf "$W/mpi"
        mpi sh -c 'echo $$ >"$0"; exec "$@"' "$W/pid" ${D}_mpi $long --checkpoint "$W/mpi" \
            --every 20 >"$W/out" 2>"$W/err" </dev/null &
        launcher=$!
        while kill -0 $launcher 2>/dev/null &&
            ! ls "$W"/mpi/step-*/manifest.json >/dev/null 2>&1; do sleep 0.02; done
        kill -TERM "$(cat "$W/pid")" 2>/dev/null
        wait $launcher
        status=$?
    done
    says "mpirun" "stopped at step [0-9]*; saved to $W/mpi; go on with --resume"
    same "mpirun: it goes on" "$(state_of $D $long --checkpoint "$W/mpi" --resume)" "$whole"
    # --timeout: a rank that does not come ends the run.
    mpi sh -c 'echo $$ >"$0"; exec "$@"' "$W/pid" ${D}_mpi $long --epochs 1000 --timeout 2 \
        --checkpoint "$W/mpi2" --every 20 >"$W/out" 2>"$W/err" </dev/null &
    launcher=$!
    while kill -0 $launcher 2>/dev/null && ! ls "$W"/mpi2/step-*/manifest.json >/dev/null \
        2>&1; do sleep 0.02; done
    kill -STOP "$(cat "$W/pid")"
    wait $launcher
    says "--timeout 2" 'rank [01] did not come within 2000 ms'
else
    skip "a signal under mpirun: ${D}_mpi is not built, or there is no mpirun"
fi

# ---- validation after every epoch: the best model is kept, and no better one ends the run ----

# Labels by chance: what is learned of them does not help on other data, the less the more is
# learned.
make_npy=$B/tests/data/make_npy
"$make_npy" "$W/a_" 1800 || fail "make_npy"
awk -F '\t' -v OFS='\t' -v to="$W" \
    'BEGIN { srand(1) } { $1 = rand() < 0.5; print >(to (NR > 1200 ? "/b.tsv" : "/a.tsv")) }' \
    "$W/a_lines.tsv"
valid="--data $W/a.tsv --valid $W/b.tsv --test $W/b.tsv --lr 0.05 --epochs 12 $small"
# epochs FILE: number, log loss and mark of each epoch's line.
epochs() {
    before='^epoch \([0-9]*\)/12  loss=[0-9.]*  valid auc=[0-9.]* '
    sed -n "s|${before}logloss=\([0-9.]*\)\( (best)\)\{0,1\}  [0-9.]* s\$|\1 \2\3|p" "$1"
}
whole=$(state_of $D $valid)
same "a line for each epoch" "$(epochs "$W/out_of" | wc -l)" 12
cp "$W/out_of" "$W/all"
rm -rf "$W/valid"
early=$(state_of $D $valid --ranks 2 --patience 3 --checkpoint "$W/valid" --log "$W/log")
best=$(epochs "$W/out_of" | awk '/best/ { print $1 }' | tail -1)
last=$(epochs "$W/out_of" | tail -1 | cut -d' ' -f1)
same "stopped 3 epochs after the best" "$last" "$((best + 3))"
if [ "$last" -lt 12 ] && [ "$early" != "$whole" ]; then
    pass
else
    fail "--patience stops nothing: $(cat "$W/out_of")"
fi
says "patience" 'no better log loss for 3 epochs'
same "the same epochs" "$(epochs "$W/out_of")" "$(epochs "$W/all" | head -"$last")"
if grep -q '"valid_auc":0' "$W/log"; then pass; else fail "no valid_auc in the log"; fi
loss=$(epochs "$W/out_of" | sed -n "${best}s/.* \([0-9.]*\) (best)/\1/p")
kept=$($D --checkpoint "$W/valid/best" --test "$W/b.tsv" $small --eval 2>"$W/err" |
    sed -n 's/^test.*logloss=\([^ ]*\) .*/\1/p')
same "the best model is in best/" "$kept" "$loss"
same "one model is in best/" "$(ls "$W/valid/best" | tr '\n' ' ')" \
    "metrics.json $(cd "$W/valid/best" && echo step-*) "
cp -r "$W/valid/best" "$W/best"
saved=$(ls -i "$W"/valid/step-*/manifest.json)
same "resumed, it has nothing to do" \
    "$(state_of $D $valid --patience 3 --checkpoint "$W/valid" --resume)" "$early"
says "resumed after patience" 'no better log loss for 3 epochs: stopped'
if grep -q 'nothing left to train' "$W/err"; then fail \
    "resumed after patience: a wrong reason: $(cat "$W/err")"; else pass; fi
same "resumed, it saves nothing again" "$(ls -i "$W"/valid/step-*/manifest.json)" "$saved"
if cmp -s "$W/best/metrics.json" "$W/valid/best/metrics.json"; then pass; else fail \
    "a resumed run changes the best"; fi
rm -rf "$W/valid"
state_of $D $valid --epochs "$((best + 1))" --checkpoint "$W/valid" >/dev/null
same "resumed between" "$(state_of $D $valid --patience 3 --checkpoint "$W/valid" --resume)" \
    "$early"
if cmp -s "$W/best/metrics.json" "$W/valid/best/metrics.json"; then pass; else fail \
    "resumed, the best is another: $(cat "$W/best/metrics.json" "$W/valid/best/metrics.json")"; fi
# Of a directory with the best model alone: a new run does not replace it, --resume goes on from it.
mkdir "$W/alone"
cp -r "$W/best" "$W/alone/best"
if $D $valid --checkpoint "$W/alone" >"$W/out" 2>"$W/err"; then fail \
    "a new run beside best/ of another"; else says "best/ of another run" 'add --resume'; fi
same "resumed from best/" "$(state_of $D $valid --patience 3 --checkpoint "$W/alone" --resume)" \
    "$early"
says "resumed from best/" "loaded step [0-9]* from $W/alone/best"
# Labels of one kind have no AUC, which JSON writes as null.
awk -F '\t' -v OFS='\t' '{ $1 = 0; print }' "$W/b.tsv" >"$W/zeros.tsv"
state_of $D --data "$W/a.tsv" --valid "$W/zeros.tsv" --checkpoint "$W/zeros" $small >/dev/null
if grep -q '"valid_auc":null,' "$W/zeros/best/metrics.json" && ! grep -q 'nan' \
    "$W/zeros/best/metrics.json"; then pass; else fail \
        "no AUC: $(cat "$W/zeros/best/metrics.json")"; fi
for wrong in "--valid needs --data:--synthetic 100 --valid $W/b.tsv" \
    "--patience needs --valid:--synthetic 100 --patience 2" \
    "--valid is read after every epoch:--data $W/a.tsv --valid -"; do
    if $D ${wrong#*:} >"$W/out" 2>"$W/err" </dev/null; then fail "${wrong#*:} is accepted"; else \
        says "${wrong#*:}" "${wrong%%:*}"; fi
done

rm -rf "$W/gpt"
state_of $G $gpt --eval-every 50 --ranks 2 --checkpoint "$W/gpt" >/dev/null
form='^step [0-9]+  [0-9.]+ s  train loss [0-9.]+  (best )?val loss [0-9.]+$'
same "gpt: lines of evaluations" "$(grep -cE "$form" "$W/out_of")" 2
state_of $G $gpt --eval-every 10 --lr 0 --min-lr 0 --patience 2 --checkpoint "$W/gpt_over" \
    >/dev/null
says "gpt, patience" 'no better loss in 2 validations'
same "gpt, patience: the last step" "$(cd "$W/gpt_over" && echo step-*)" step-000000000030
saved=$(ls -i "$W"/gpt_over/step-*/manifest.json)
if grep -q '"metrics": {"lr": 0, "valid_loss": [0-9]' "$W"/gpt_over/best/step-*/manifest.json
then pass; else fail "gpt: the manifest of best/ has no loss"; fi
state_of $G $gpt --eval-every 10 --lr 0 --min-lr 0 --patience 2 --checkpoint "$W/gpt_over" \
    --resume >/dev/null
if grep -q 'loss 0.0000' "$W/err"; then fail "gpt, patience: it shows a loss"; else pass; fi
same "gpt, patience: resumed, it saves nothing again" \
    "$(ls -i "$W"/gpt_over/step-*/manifest.json)" "$saved"
same "gpt, patience: resumed, it has nothing to do" "$(cd "$W/gpt_over" && echo step-*)" \
    step-000000000030
if grep -q '^{"at":[0-9]*,"loss":[0-9.]*,"step":[0-9]*}$' "$W/gpt/best/metrics.json" && ls \
    "$W"/gpt/best/step-*/manifest.json >"$W/out"; then pass; else fail "gpt: no best/"; fi

# A rank that does not come in time ends the run. As many threads for a rank under mpirun as beside
# it.
if "$D" --help | grep -q -- '--timeout SECONDS'; then pass; else fail "no --timeout"; fi
state_of $D $long --epochs 0 --timeout 0 >/dev/null && pass || fail "--timeout 0: $(cat "$W/err")"
# Threads whose messages do not fit into the machine are refused before they take its memory.
if [ "$(awk '/^MemTotal/ { print $2 < 30e6 }' /proc/meminfo 2>/dev/null)" = 1 ]; then
    (ulimit -v 4000000; timeout 900 $D --synthetic 100 --ranks 1024) >"$W/out" 2>"$W/err" &&
        fail "1024 ranks run"
    says "1024 ranks" '--ranks 1024: messages between so many threads take .* GB'
fi
NEO_ISA=scalar state_of $D --synthetic 200 $small --ranks 2 >/dev/null
case $(uname -m) in
x86_64 | aarch64) same "plain C is said once" \
    "$(grep -c 'warning: .* without vector instructions, .*: neo_ctx_desc.isa' "$W/err")" 1 ;;
esac

# --summary: what is counted is what a checkpoint holds, and nothing trains.
for ranks in 1 2; do
    $D $long --summary --ranks $ranks --dense-shard full >"$W/out" 2>"$W/err"
    # 13 x 24 + 24, 24 x 8 + 8, the interaction of 27 vectors of 8, 359 x 24 + 24, 24 + 1; 26 tables
    numbers=$((13 * 24 + 24 + 24 * 8 + 8 + (8 + 27 * 26 / 2) * 24 + 24 + 24 + 1 + 26 * 400 * 8))
    form="$numbers parameters, $((4 * numbers)) bytes"
    form="$form, and $((8 * numbers)) bytes of optimizer state"
    if grep -q "^$form$" "$W/out" &&
        [ "$(wc -l <"$W/out")" = $((8 + 26 + 2)) ]; then pass; else fail \
            "--summary, $ranks ranks: $(cat "$W/out" "$W/err")"; fi
done
$G $gpt --summary --ranks 2 --shard full >"$W/out" 2>"$W/err"
layer=$((4 * 32 + 32 * 96 + 96 + 32 * 32 + 32 + 8 * 32 * 32 + 4 * 32 + 32))
numbers=$((65 * 32 + 16 * 32 + 2 * 32 + 2 * layer))
if grep -q "^$numbers parameters, $((4 * numbers)) bytes" "$W/out"; then
    pass
else
    fail "gpt --summary: not $numbers in $(tail -2 "$W/out")"
fi

# ---- a run that has diverged: the step, the weights, the checkpoint to go back to, what to do;
# nothing is saved over good checkpoints ----

# sick LABEL MESSAGE COMMAND...
sick() {
    label=$1 message=$2
    shift 2
    timeout 900 "$@" >"$W/out" 2>"$W/err" </dev/null
    status=$?
    same "$label: exit status" "$status" 1
    if [ "$(grep -cE -- "$message" "$W/err")" = 1 ]; then
        pass
    else
        fail "$label: no '$message' in $(tail -2 "$W/err")"
    fi
    if grep -q '^state' "$W/out"; then fail "$label: printed a digest"; else pass; fi
}
back='--resume goes back to step 100: give it a smaller --lr or --clip-norm'
tensor="(bottom|top|bags)\.[^ ]*( is not finite)?; $back"
norm='the largest gradient norm at hand is [-a-z0-9.+]*, of (bottom|top)\.[0-9]\.(weight|bias)'
begin='there is no checkpoint: begin again with a smaller --lr or --clip'
sgd="--synthetic 9600 $small --optimizer sgd"
good=$(state_of $D $sgd --lr 0.01 --epochs 2)
for ranks in 1 2; do
    steps="$sgd --ranks $ranks --checkpoint $W/sick$ranks"
    $D $steps --lr 0.01 >"$W/out" 2>"$W/err"
    # Of the first step the loss is of the weights before it: the weights are looked at.
    for every in 1 2 3; do
        sick "a learning rate too large, $ranks ranks, --every $every" \
            "step 10[1-3]: the (run has diverged|loss is [-a-z]*; $norm); (the .*, in )?$tensor" \
            $D $steps --lr 1e9 --epochs 2 --every $every --resume
        same "no checkpoint after it, $ranks ranks" "$(ls "$W/sick$ranks")" step-000000000100
    done
    sick "a loss that is not finite, $ranks ranks" \
        "step 10[0-9]: the loss is (nan|-?inf); $norm; $tensor" \
        $D $steps --lr 1e9 --epochs 2 --every 50 --resume
    same "it goes on from the good one, $ranks ranks" \
        "$(state_of $D $steps --lr 0.01 --epochs 2 --resume)" "$good"
    if grep -q ' --lr ' "$W/err"; then fail "the same --lr: $(cat "$W/err")"; else pass; fi
    state_of $D $steps --lr 0.02 --epochs 3 --resume >/dev/null
    says "another --lr, $ranks ranks" \
        'warning: step 200 was saved with --lr 0.01, the run goes on with --lr 0.02'
done
sick "the last step of a run without checkpoints" \
    "step 1: the run has diverged; .*; $begin" $D --synthetic 96 $small --optimizer sgd --lr 1e9
# One number is enough, of rows of any kind: the last one of the file is of a table.
state_of $D $sgd --ranks 2 --checkpoint "$W/one" --epochs 0 >/dev/null
"$B/merge" "$W/one" "$W/one.safetensors" || fail "merge"
size=$(wc -c <"$W/one.safetensors")
for dtype in f32 f16 bf16; do
    for number in '\377\377\377\177' '\000\000\200\377'; do # NaN, -infinity
        printf "$number" | dd of="$W/one.safetensors" bs=1 seek=$((size - 4)) conv=notrunc \
            2>/dev/null
        sick "one number, $dtype" \
            "step 0: the run has diverged; bags\.C[0-9]*\.weight is not finite" $D $sgd --ranks 2 \
            --load "$W/one.safetensors" --rows-dtype $dtype --epochs 0 --checkpoint "$W/sick_$dtype"
    done
done
printf '\050\153\156\116' | dd of="$W/one.safetensors" bs=1 seek=$((size - 4)) conv=notrunc \
    2>/dev/null
sick "one large number" \
    "step 0: the run has diverged; the largest weight is 1e[+]09, in bags\.C[0-9]*\.weight" \
    $D $sgd --load "$W/one.safetensors" --epochs 0
# The best model is looked at before it is kept.
sick "best/" "step 1: the run has diverged; .*; $begin" $D --data "$W/a.tsv" --valid "$W/b.tsv" \
    ${small% --batch*} --batch 1200 --lr 1e9 --epochs 2 --checkpoint "$W/sick_best"
if ls "$W"/sick_*/step-* "$W"/sick_*/best/step-* >/dev/null 2>&1; then fail \
    "saved after a run diverged: $(ls "$W"/sick_*)"; else pass; fi
sick "gpt, a learning rate too large" "step [0-9]*: the run has diverged; .*; $begin" \
    $G $gpt --ranks 2 --lr 1e9 --min-lr 1e9 --warmup 0 --clip 0 --every 1 --checkpoint "$W/sick_gpt"
sick "gpt, a gradient that is not finite" \
    "gradient's norm is nan at step 2; the largest weight is [0-9.e+]*, in [a-z0-9_.]*; $begin" \
    $G $gpt --lr 1e9 --min-lr 1e9 --warmup 0
sick "gpt, a loss that is not finite" \
    "step [0-9]*: the loss is (nan|inf); ${norm%(bottom*}[a-z0-9_.]*; .*; $begin" \
    $G $gpt --ranks 2 --lr 1e9 --min-lr 1e9 --warmup 0 --clip 0 --checkpoint "$W/sick_gpt"
if ls "$W/sick_gpt"/step-* >/dev/null 2>&1; then fail "gpt: saved after it diverged"; else pass; fi

rm -rf "$W"
finish programs/long_runs
