#!/bin/sh
# readme.sh: README.md and examples/*.c keep what they print.
#
# ```c blocks: the trainer is examples/trainer.c, and neo.c is examples/neo.c. They build by the
# printed command and give the printed lines. Other blocks compile (declarations and functions as
# they stand, statements as a function's body). Indented commands that a line `state <digest>`
# follows end with that line. Every program in examples/ gives the state that its comment promises.
# make targets and options that the README names exist.

B=${B:-build}
CC=${CC:-cc}
. tests/harness.sh
W=$B/tmp/readme
rm -rf "$W"
mkdir -p "$W"
cp neo*.h neo_cuda.cuh "$W/"

if grep -nE '@[A-Z_]+@' README.md; then fail "a placeholder is left"; else pass; fi
if [ "$(wc -l <README.md)" -le 300 ]; then pass; else fail "README.md has more than 300 lines"; fi
if grep -nE '^.{101}' README.md; then fail "README.md: a line is too long"; else pass; fi

# ---- blocks: <number>.<language>, and the README's line of each ----

awk -v dir="$W" '
    /^```/ && !open { open = 1; n++; language = substr($0, 4); sub(/[ \t].*/, "", language)
        if (language == "") language = "text"; file = sprintf("%s/%02d.%s", dir, n, language)
        printf "" > file; print NR > (file ".line"); next }
    /^```/ { open = 0; close(file); next }
    open { print >> file }' README.md

all=$(tail -n +2 examples/neo.c) # the headers
compiles() { (cd "$W" && $build -I. -c -o block.o "$1") >"$W/log" 2>&1; }
trainer=
for file in "$W"/*.c "$W"/*.c++; do
    [ -f "$file" ] || continue
    at="README.md:$(cat "$file.line")"
    case $file in
    *.c) build="$CC -std=c11 -x c" ;;
    *) build="${CXX:-c++} -std=c++17 -x c++" ;;
    esac
    if grep -q 'NEO_IMPLEMENTATION' "$file"; then
        sed 's, */\*.*\*/,,' "$file" >"$W/neo.c"
        if cmp -s "$W/neo.c" examples/neo.c; then pass; else fail "$at: is not examples/neo.c"; fi
    elif grep -q 'int main(' "$file"; then
        trainer=examples/$(sed -n '1s,^/\* \([a-z_]*\.c\):.*,\1,p' "$file")
        if cmp -s "$file" "$trainer"; then pass; else fail "$at: is not $trainer"; fi
    else
        { echo "$all"; cat "$file"; } >"$W/block.c"
        { echo "$all"; echo 'int body(void); int body(void) {'
            cat "$file"; echo 'return 0; }'; } >"$W/body.c"
        if compiles body.c || compiles block.c; then pass; else fail "$at: $(head -3 "$W/log")"; fi
    fi
done

# The trainer by its own command, with the files that it speaks of beside it. Its neo.c, which is
# examples/neo.c, is compiled already, in parts; with NEO_FULL set by this command, too.
if [ -f "$trainer" ] && cp "$trainer" "$W/"; then
    command=$(sed -n "s,^ *cc -O2 -c neo\.c && cc -O2 \(.*neo\.o .*\)$,$CC -O2 \1,p" "$trainer")
    if [ -z "$NEO_FULL" ]; then cp "$B/neo.o" "$W/"; else command="$CC -O2 -c neo.c && $command"; fi
    (cd "$W" && sh -c "$command") >"$W/out" 2>"$W/log" </dev/null
    printed=$(sed -n '/^    step 50 /,/^    state/s/^    //p' README.md)
    same "$trainer by its command" "$(cat "$W/out")" "$printed"
else
    fail "README.md has no trainer"
fi

# ---- commands with a printed state ----

# One line for each: the state, and the command that ends with it.
awk '/^    (build|mpirun)/ { commands[n++] = $0; next }
    /^    state / { for (i = 0; i < n; i++) print $2, commands[i] }
    { n = 0 }' README.md >"$W/commands"
count=$(wc -l <"$W/commands")
# Those over MPI with NEO_FULL, as their programs take a neo.c by mpicc; the rest are built.
if [ -n "$NEO_FULL" ] && have "${MPICC:-mpicc}" && have mpirun; then
    if "${MAKE:-make}" --no-print-directory "$B/dlrm_mpi" "$B/gpt_mpi" >"$W/mpi" 2>&1; then
        pass
    else
        fail "make build/dlrm_mpi build/gpt_mpi: $(tail -3 "$W/mpi")"
    fi
fi
if [ "$count" = 8 ]; then pass; else fail "README.md: $count commands with a state, not 8"; fi
while read -r state command; do
    command=$(echo "$command" | sed "s,build/,$B/,g")
    program=$(echo "$command" | grep -oE "$B/[a-z_]+" | head -1)
    case $NEO_FULL:$command in
    :*gpt*--ranks*) continue ;; # with NEO_FULL; gpt.sh has the same bits on ranks
    1:mpirun* | 1:*gpt*--ranks*) ;;
    1:*) continue ;; # in make test
    esac
    case $command in
    mpirun*)
        if ! [ -x "$program" ] || ! have mpirun; then
            skip "$command: there is no $program, or no mpirun"
            continue
        fi
        if ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
            command=$(echo "$command" | sed 's/--oversubscribe //')
        fi
        case $TMPDIR in /tmp/neo.*) ;; *) mpi_folder ;; esac
        ;;
    esac
    if [ -x "$program" ]; then
        same "$command" "$(state_of timeout 900 $command </dev/null)" "$state"
    else
        skip "$command: $program is not built"
    fi
done <"$W/commands"

# ---- programs in examples/ ----

# promise NAME: the state in the comment of examples/NAME.c.
promise() { grep -oE 'state [0-9a-f]{16}' "examples/$1.c" | sed 's/state //'; }
# gpu.c on the emulated device, and on the CPU.
gpu=$B/tests/emulated_gpu
if [ -x "$gpu" ]; then
    same "gpu on the emulated device" \
        "$(ASAN_OPTIONS=detect_leaks=0 state_of timeout 900 "$gpu")" "$(promise gpu)"
    same "gpu cpu" "$(ASAN_OPTIONS=detect_leaks=0 state_of timeout 900 "$gpu" cpu)" \
        "$(promise gpu)"
else
    skip "gpu: no emulated device was built"
fi
if [ "$NEO_FULL" = 1 ]; then # the rest is in make test
    finish programs/readme
    exit
fi
# keeps NAME ARGUMENTS...: build/NAME gives the state that examples/NAME.c promises.
keeps() {
    name=$1
    shift
    if [ -x "$B/$name" ]; then
        same "$name $*" "$(state_of timeout 900 "$B/$name" "$@")" "$(promise "$name")"
    else
        skip "$name: is not built"
    fi
}
for ranks in 1 3 4 6; do
    keeps units $ranks
    keeps shard $ranks
done
# usage NAME ARGUMENTS...: they are refused in one line, with status 2.
usage() {
    [ -x "$B/$1" ] || { skip "$1: is not built"; return; }
    said=$("$B/$@" 2>&1)
    same "$*" "$? $(echo "$said" | grep -c "$1 [][A-Z-]")" "2 1"
}
usage allreduce --ranks
usage ranks 3
usage job "$W/job" 2 3
usage job --help
usage one_file_dlrm "$W/checkpoints" x
usage one_file_gpt x
usage hstu x
usage shard x
usage towers 4 3
usage units 2 3
keeps ranks --ranks 2
keeps allreduce --ranks 3
keeps bags
keeps hstu
# stopped FOLDER COMMAND...: gets SIGTERM once FOLDER has a checkpoint; prints the exit status and
# what it says. One that is over before is run again.
stopped() {
    folder=$1 status=0 tries=0
    shift
    while [ $status = 0 ] && [ $tries -lt 5 ]; do
        tries=$((tries + 1))
        rm -rf "$folder"
        "$@" >"$W/out" 2>"$W/err" &
        pid=$!
        while kill -0 $pid 2>/dev/null && ! ls "$folder"/step-*/manifest.json >/dev/null 2>&1; do
            sleep 0.01
        done
        kill -TERM $pid 2>/dev/null
        wait $pid
        status=$?
    done
    echo "$status $(cat "$W/err")"
}
if [ -x "$B/job" ]; then # stopped on the way, and gone on with on another number of ranks
    for ranks in 1 3; do
        same "job $ranks: stopped" "$(stopped "$W/job" "$B/job" "$W/job" $ranks)" \
            "143 job: stopped and saved: the same command goes on"
        keeps job "$W/job" $((5 - ranks))
        if ls "$W"/job/best/step-*/manifest.json >/dev/null 2>&1; then
            pass
        else
            fail "job: no best/"
        fi
    done
fi
keeps one_file_dlrm
if [ -x "$B/one_file_dlrm" ]; then # stopped after 4 of its epochs, and begun again
    "$B/one_file_dlrm" "$W/checkpoints" 4 >"$W/out" 2>"$W/err"
    keeps one_file_dlrm "$W/checkpoints"
    same "one_file_dlrm: stopped" "$(stopped "$W/checkpoints" "$B/one_file_dlrm" \
        "$W/checkpoints" | sed 's/epoch [0-9]*;/epoch N;/')" \
        "143 one_file_dlrm: stopped after epoch N; the same command goes on"
    keeps one_file_dlrm "$W/checkpoints"
fi
for short in dlrm gpt; do
    if [ "$(wc -l <examples/one_file_$short.c)" -le 200 ]; then pass; else fail \
        "one_file_$short.c has more than 200 lines"; fi
done
if [ -x "$B/sum" ]; then
    expected=$(sed -n '/^     day 1/,/has no row/s/^     //p' examples/keyed.c | sed 's| \*/$||')
    same "keyed" "$("$B/keyed")" "$expected"
    same "sum" "$("$B/sum")" "$(sed -n 's/.*Expect `\(.*\)`.*/\1/p' examples/sum.c)"
else
    skip "sum: is not built"
fi
if [ -x "$B/towers" ]; then
    for ranks in 1 4 "2 2" "6 3" "8 1" "8 2" "8 4"; do
        same "towers $ranks" "$("$B/towers" $ranks | tail -1)" \
            "$(sed -n 's/.*`\(state [0-9a-f]*\)`.*/\1/p' examples/towers.c)"
    done
    case $("$B/towers" 5 2>&1) in
    *"several pieces: 1, 2, 4 or 8 ranks"*) pass ;;
    *) fail "towers on 5 ranks" ;;
    esac
fi
if [ -x "$B/dcnv2" ]; then
    same "dcnv2" "$("$B/dcnv2" | tail -1)" \
        "$(sed -n 's/.*Expect a falling loss, and `\(.*\)` on any machine.*/\1/p' examples/dcnv2.c)"
else
    skip "dcnv2: is not built"
fi
if [ -x "$B/custom" ]; then
    if "$B/custom" >"$W/out" 2>&1; then pass; else fail "custom: $(tail -1 "$W/out")"; fi
else
    skip "custom: is not built"
fi
# The one-file programs train what the programs with options train.
if [ -x "$B/one_file_gpt" ] && [ -x "$B/gpt" ]; then
    text=examples/data/shakespeare/input.txt # of which a little validates
    head -c $(($(wc -c <$text) * 9 / 10)) $text >"$W/trains"
    tail -c 4000 $text >"$W/validates"
    expected=$(state_of "$B/gpt" --steps 5 --sample 0 --data "$W/trains" --valid "$W/validates")
    same "one_file_gpt" "$(state_of "$B/one_file_gpt" 5)" "$expected"
fi
if [ -x "$B/one_file_dlrm" ] && [ -x "$B/dlrm" ]; then
    adult=examples/data/adult/adult
    data="--format adult --data $adult.data --test $adult.test --shuffle 32768 --batch 256"
    model="--dim 8 --bottom 5-32-8 --top 32-1 --epochs 10 --lr 0.02 --seed 1"
    same "dlrm as one_file_dlrm" "$(state_of "$B/dlrm" $data $model --repro-shards 1)" \
        "$(promise one_file_dlrm)"
fi
# gpu.c without the CUDA toolkit.
if $CC -std=c11 -O1 -I. -o "$W/gpu" examples/gpu.c examples/train/no_cuda.c "$B/neo.a" -lm \
    -pthread >"$W/log" 2>&1; then
    same "gpu without CUDA" "$(state_of "$W/gpu")" "$(promise gpu)"
    if grep -q 'built without CUDA: the CPU computes' "$W/err"; then
        pass
    else
        fail "gpu without CUDA: $(cat "$W/err")"
    fi
else
    fail "gpu without CUDA: $(head -3 "$W/log")"
fi

# ---- commands of dlrm that end with no state: on small files of their names ----

if [ -x "$B/dlrm" ]; then
    mkdir "$W/data"
    ln -s "$(cd "$B" && pwd)" "$W/data/build"
    awk -v to="$W/data/" 'BEGIN { srand(1)
        print "age,Job #2,click,buy" >(to "clicks.csv")
        for (i = 0; i < 600; i++) {
            day = to "day_" (i % 2) ".tsv"
            printf "%d", rand() < 0.3 >day
            for (k = 0; k < 13; k++) printf "\t%d", 100 * rand() >day
            for (k = 0; k < 26; k++) printf "\t%08x", 1000 * rand() >day
            print "" >day
            printf "%d 0:%d:1 1:%d:0.5\n", rand() < 0.3, 50 * rand(), 9 * rand() >(to "my.ffm")
            printf "%d,job %d,%d,%s\n", 20 + 50 * rand(), 9 * rand(), rand() < 0.3,
                rand() < 0.3 ? "yes" : "no" >(to "clicks.csv")
        } }'
    sed -n '/^    header /,/^$/s/^    //p' README.md >"$W/data/clicks.columns"
    # whole lines, fewer rows; `...` is the first command
    awk '/^    build\/dlrm (--data|.*--keys|\.\.\.)/ { sub(/^ */, ""); while (sub(/\\$/, "")) {
             getline more; $0 = $0 more } sub(/ # .*/, ""); print }
         match($0, /`build\/dlrm --format[^`]*/) { print substr($0, RSTART + 1, RLENGTH - 1) }' \
        README.md | sed 's/--rows 1000000/--rows 1000/' >"$W/commands"
    first=$(head -1 "$W/commands")
    while read -r command; do
        command=$(echo "$command" | sed "s,build/dlrm \.\.\.,$first,")
        try "README.md: $command" sh -c "cd '$W/data' && $command </dev/null"
    done <"$W/commands"
    same "README.md: commands of dlrm" "$(wc -l <"$W/commands")" 6
    same "README.md: --predict" "$(wc -l <"$W/data/out.txt")" 300
fi

# ---- make targets and options that the README names ----

for target in $(grep -oE '(^ *|`)make [a-z-]+' README.md | sed 's/.*make //' | sort -u); do
    if grep -qE "^($target|.*[ ]$target)[ a-z-]*:" Makefile tests/rules.mk; then
        pass
    else
        fail "README.md: make $target: no such target"
    fi
done
# options PROGRAM COLUMN: those in commands, and those in that column of the table.
options() {
    {
        awk -v name="build/$1" '/^    / && (index($0, name) || more) { print; more = /\\$/ }' \
            README.md | sed 's/mpirun --oversubscribe//'
        sed -n '/^| to |/,/^$/p' README.md | cut -d'|' -f"$2"
    } | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u
}
for program in "dlrm 3" "gpt 4" "serve 9"; do
    name=${program% *}
    [ -x "$B/$name" ] || { skip "options of $name: it is not built"; continue; }
    "$B/$name" --help >"$W/help"
    for option in $(options $program); do
        if grep -qE -- "^ *$option( |$)" "$W/help"; then
            pass
        else
            fail "README.md: $name has no option $option"
        fi
    done
done
if [ -x "$B/plan" ]; then
    plan=$(sed -n 's/^ *build\/plan \(.*\) --svg .*/\1/p' README.md)
    if "$B/plan" $plan --svg "$W/a2.svg" >"$W/out" 2>&1; then
        pass
    else
        fail "build/plan $plan: $(tail -1 "$W/out")"
    fi
fi

finish programs/readme
