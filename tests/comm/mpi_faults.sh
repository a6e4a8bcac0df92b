#!/bin/sh
# mpi_faults.sh: ranks that exit, are killed or stopped, come late, give up, return or call
# something else, over every MPI of this machine (OpenMPI and MPICH side by side, as Debian installs
# them, or the plain mpicc).
#
# Each job is tests/comm/fault_rank.c on four ranks, of which rank 1 has the fault. The others write
# what they saw to files, and leave; the files are judged, and not what the launcher makes of it.
# Every rank that is left must have seen one of the three kinds of error, with a message that names
# ranks and operation, and the same words from every later call. How fast is not judged.
#
# Launchers end a job when one process is lost, unless asked not to: OpenMPI by --enable-recovery;
# hydra, of MPICH, by -disable-auto-cleanup, but when one is killed by a signal it signals the
# others all the same (4.0.2): there each rank is in a session of its own. UCX, below MPICH, ends a
# process whose peer vanishes while it reads from that one's memory (cma), and may not come back
# from MPI_Finalize where it uses TCP (1.13), so it gets neither. The jobs of the two MPIs run at
# the same time, and the divergences beside the rest, as ranks wait most of it.

B=${B:-build}
. tests/harness.sh
W=$B/mpi_faults
rm -rf "$W"
mkdir -p "$W"
export UCX_TLS=posix,sysv,self OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp

kinds=
for kind in openmpi mpich; do
    if have mpicc.$kind && have mpirun.$kind; then kinds="$kinds .$kind"; fi
done
if [ -z "$kinds" ] && have mpicc && have mpirun; then kinds=/; fi
if [ -z "$kinds" ] || ! have timeout; then
    skip "MPI faults: no mpicc (Debian: libopenmpi-dev openmpi-bin, libmpich-dev mpich)," \
        "or no timeout"
    finish comm/mpi_faults
    exit
fi

# Fault and operation of each job.
jobs='exit0 all_reduce
exit0 midway
exit3 all_to_allv async
exit3 large_broadcast
kill barrier
kill large_all_reduce
kill midway async
stop all_gather async
stop midway
sleep scatter
delay broadcast async
abort large_all_gather async
fail reduce_scatter
return gather
return barrier async
unheard send
divergence even
divergence odd'

# launch SUFFIX NAME PATTERN: the jobs whose fault is like that, one after another; job n writes to
# $W/NAME/n.
launch() {
    suffix=$1
    folder=$W/$2
    n=0
    # OpenMPI's jobs of one user share a folder there, which each removes
    TMPDIR=$(mktemp -d /tmp/neo.XXXXXX)
    export TMPDIR
    echo "$jobs" | while read -r fault operation async; do
        n=$((n + 1))
        case $fault in $3) ;; *) continue ;; esac
        mkdir -p "$folder/$n"
        if mpirun"$suffix" --version 2>/dev/null | grep -qiE 'open.?mpi|openrte'; then
            more='--oversubscribe --enable-recovery --mca orte_abort_on_non_zero_status 0 -n 4'
        elif mpirun"$suffix" --version 2>/dev/null | grep -qi hydra; then
            more='-disable-auto-cleanup -n 4'
            if have setsid; then more="$more setsid -w"; fi
        else
            more='-n 4'
        fi
        timeout -k 5 900 mpirun"$suffix" $more "$folder/rank" "$folder/$n" "$fault" "$operation" \
            $async \
            >"$folder/$n/log" 2>&1 </dev/null
    done
    rm -rf "$TMPDIR"
}

tab=$(printf '\t')
# saw FILE KINDS MESSAGE: one rank's file of a job that ends with the fault.
saw() {
    awk -F "$tab" -v kinds="^($2)\$" -v form="$3" '
        function wrong(why) { if (!bad++) print why ": " $0 }
        function same() { return $2 == status && $3 == text }
        $1 == "fault" {
            seen++; status = $2; text = $3
            if ($2 !~ kinds || $3 !~ form) wrong("status or message")
        }
        $1 == "again" { agains++; if (!same()) wrong("a later call says something else") }
        $1 == "end" { ends++; if (!same()) wrong("neo_comm_init_env says something else") }
        $1 == "checks" { checked++; if ($2 < 1 || $3 != 0) wrong("failed checks") }
        END {
            if (!bad && (seen != 1 || agains != 2 || ends != 1 || checked != 1))
                print "the file is not complete"
        }
    ' "$1"
}
# diverged FILE: one rank's file of many faults, each on a group of its own.
diverged() {
    awk -F "$tab" '
        function wrong(why) { if (!bad++) print why ": " $0 }
        $1 == "again" {
            if ($2 != status || $3 != text) wrong("a later call says something else")
            agains++; next
        }
        $1 == "end" { ends++; if ($2 != "OK") wrong("the job") ; next }
        $1 == "checks" { checked++; if ($2 < 1 || $3 != 0) wrong("failed checks"); next }
        {
            seen++; status = $2; text = $3
            kind = "^DIVERGED$"
            if ($1 ~ /^(root|other)\//) kind = "^(DIVERGED|TIMEOUT)$"
            if ($1 ~ /^late\//) kind = "^TIMEOUT$"
            if ($2 !~ kind) wrong("status")
            call = ": [a-z_/]+ #[0-9]+"
            late = "^rank [0-3]" call ".*: rank [0-3] did not come within 700 ms$"
            his = "^rank 1" call ".*, but rank [0-3]" call
            ours = "^rank [0-3]" call ".*, but rank 1" call
            uneven = "^rank [0-3]" call ".*: expects [0-9]+ bytes from rank 1, which sends [0-9]+"
            if ($2 == "TIMEOUT" && $3 !~ late) wrong("message")
            if ($2 == "DIVERGED" && $3 !~ his && $3 !~ ours && $3 !~ uneven) wrong("message")
            if ($1 ~ /^label\// && $3 !~ /^rank 1: .* of .h[.]3., but/ &&
                $3 !~ /, but rank 1: .* of .h[.]3.$/) wrong("his label")
            if ($1 ~ /^label\/.*l/ && $3 !~ / of .h[.]2./) wrong("the label of the others")
        }
        END {
            if (!bad && (seen < 21 || agains != seen || ends != 1 || checked != 1))
                print "the file is not complete"
        }
    ' "$1"
}

# unheard FILE: one rank's file of a job in which nobody receives a message.
unheard() {
    end="end${tab}PEER${tab}rank 2: send/recv #0 (16 i64): rank 3 has left"
    grep -qFx "$end" "$1" || echo "does not end with '$end'"
}

for kind in $kinds; do
    suffix=${kind#/}
    name=${suffix#.}
    name=${name:-mpi}
    mkdir -p "$W/$name"
    if mpicc"$suffix" -std=gnu11 -Wall -Wextra -O1 -g -DNEO_COMM_MPI -I. -Itests -o \
        "$W/$name/rank" tests/comm/fault_rank.c \
        -lm -pthread >"$W/$name/build" 2>&1; then
        launch "$suffix" "$name" '[!d]*' &
        launch "$suffix" "$name" 'd*' &
    else
        fail "$name: does not build (see $W/$name/build)"
    fi
done
wait

timed='^rank [0-3]: [a-z_/]+ #[0-9]+.*: rank [0-3]( did not come within 700 ms$| has left$|: MPI: )'
given='^rank 1 has given up: the disk is full$'
for kind in $kinds; do
    suffix=${kind#/}
    name=${suffix#.}
    name=${name:-mpi}
    [ -x "$W/$name/rank" ] || continue
    n=0
    while read -r fault operation async; do
        n=$((n + 1))
        for rank in 0 1 2 3; do
            file=$W/$name/$n/rank.$rank
            what="$name: $fault $operation $async, rank $rank"
            if [ ! -f "$file" ]; then
                fail "$what: it did not start: $(head -3 "$W/$name/$n/log")"
                continue
            fi
            case $fault in
            divergence) why=$(diverged "$file") ;;
            unheard) why=$(unheard "$file") ;;
            sleep | delay) why=$(saw "$file" TIMEOUT "$timed") ;;
            abort) why=$(saw "$file" PEER "$given") ;;
            fail) if [ $rank != 1 ]; then why=$(saw "$file" PEER "$given"); else why=; fi ;;
            *) if [ $rank != 1 ]; then why=$(saw "$file" 'PEER|TIMEOUT' "$timed"); else why=; fi ;;
            esac
            if [ -z "$why" ]; then
                pass
            else
                fail "$what: $why"
                tail -3 "$W/$name/$n/log"
            fi
        done
    done <<END
$jobs
END
done
finish comm/mpi_faults
