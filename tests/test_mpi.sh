#!/bin/sh
# test_mpi.sh: neo_comm.h over every MPI of this machine (OpenMPI and MPICH side by side, as Debian installs them, or
# the plain mpicc): tests/test_comm.c with 1 to 4 ranks, and once with sums that take many segments; test_comm_more.c,
# where bytes are counted by MPI's profiling interface too; test_comm_data.c, also with numbers piped into mpirun (as
# many as MPICH's takes); the digest of examples/allreduce.c, the same for 1, 2, 4 and 8 ranks as threads and over each
# MPI; and a call that every rank refuses. With NEO_FULL set: 1 to 8 ranks, all sizes.

B=${B:-build}
MAKE=${MAKE:-make}
. tests/harness.sh
W=$B/mpi
mkdir -p "$W" "$B/logs"
# OpenMPI: as root, with more ranks than cores; its sockets need short names.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp

kinds=
for kind in openmpi mpich; do
    if have mpicc.$kind && have mpirun.$kind; then kinds="$kinds .$kind"; fi
done
if [ -z "$kinds" ] && have mpicc && have mpirun; then kinds=/; fi
if [ -z "$kinds" ]; then
    skip "MPI: no mpicc (Debian: libopenmpi-dev openmpi-bin, libmpich-dev mpich)"
    finish test_mpi
    exit
fi

# Ranks, program and its argument of each run.
runs='1 test_comm 1000
2 test_comm 1000
3 test_comm 1000
4 test_comm 1000
2 test_comm 100000
2 test_comm_more
4 test_comm_more
1 test_comm_data
3 test_comm_data
4 test_comm_data'
if [ -n "$NEO_FULL" ]; then
    runs=$(for n in 1 2 3 4 5 6 7 8; do printf '%s\n' "$n test_comm 10000" "$n test_comm_more" "$n test_comm_data"; done)
    runs=$(printf '%s\n' "$runs" "2 test_comm 1000000" "4 test_comm 1000000")
fi

# start RANKS PROGRAM...: under the MPI of $suffix, with its option $over; what it says is in $W/out.
start() {
    ranks=$1
    shift
    timeout -k 10 ${NEO_FULL:+1}150 mpirun$suffix $over -n "$ranks" "$@" >"$W/out" 2>&1 </dev/null
}

"$MAKE" --no-print-directory "$B/allreduce" >"$B/logs/mpi.build" 2>&1
for n in 1 2 4 8; do
    digest=$(timeout 60 "$B/allreduce" --ranks $n 2>&1 | grep '^state')
    if [ $n = 1 ]; then expected=$digest; fi
    same "allreduce, $n threads" "$digest" "$expected"
done

for kind in $kinds; do
    suffix=${kind#/}
    name=${suffix#.}
    name=${name:-mpi}
    over=
    if mpirun$suffix --version 2>/dev/null | grep -qiE 'open.?mpi|openrte'; then over=--oversubscribe; fi
    P=$W/$name
    if ! "$MAKE" --no-print-directory ${JOBS:+-j$JOBS} B="$P" MPICC="mpicc$suffix" CFLAGS=-O1 "$P/allreduce_mpi" \
        "$P/tests/test_comm_mpi" "$P/tests/test_comm_more_mpi" "$P/tests/test_comm_data_mpi" \
        >"$B/logs/mpi_$name.build" 2>&1; then
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
        digest=$(seq 0 9999 | timeout 60 mpirun$suffix -n $n $over "$P/tests/test_comm_data_mpi" stdin 2>&1 | grep '^stdin')
        same "standard input, $n ranks of $name" "$digest" 'stdin: 10000 samples, 333333330000'
    done
    for n in 1 2 4 8; do
        start $n "$P/allreduce_mpi"
        same "allreduce, $n ranks of $name" "$(grep '^state' "$W/out")" "$expected"
    done
    # More ranks than leaves: an error, and none waits for another.
    start 9 "$P/allreduce_mpi"
    status=$?
    if [ $status != 0 ] && [ $status -lt 124 ] && grep -q 'repro_shards is 8, less than the 9 ranks' "$W/out"; then
        pass
    else
        fail "$name: 9 ranks on 8 leaves: status $status: $(head -3 "$W/out")"
    fi
done
finish test_mpi
