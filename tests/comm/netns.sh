#!/bin/sh
# netns.sh: "make netns". Two hosts on one machine: network namespaces with host names of their own,
# joined by a bridge in a third; nothing is added to the machine's own network. With OpenMPI and
# MPICH over TCP, two ranks on each host:
#   tests/comm/collectives.c and the digest of examples/allreduce.c;
#   the link between the hosts is cut for a second in the middle of a job: nobody notices;
#   it is cut for good: every rank ends with an error soon after its timeout, and does not hang;
# over a link of 1 Gbit/s, an asynchronous call hides at least 60 % of its time behind a
# computation. Needs root, iproute2 and an MPI; else it is skipped.

B=${B:-build}
MAKE=${MAKE:-make}
. tests/harness.sh
B=$(mkdir -p "$B" && cd "$B" && pwd)
W=$B/netns
tag=neo$$
net=10.213.47
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 UCX_TLS=tcp,self \
    UCX_NET_DEVICES=eth0
export TMPDIR=/tmp

leave() {
    skip "network namespaces: $*"
    finish comm/netns
    exit
}
[ "$(id -u)" = 0 ] || leave "not root"
have ip && have unshare || leave "no ip or unshare (Debian: iproute2, util-linux)"
kinds=
for kind in openmpi mpich; do
    if have mpicc.$kind && have mpirun.$kind; then kinds="$kinds $kind"; fi
done
[ -n "$kinds" ] || leave "no MPI (Debian: libopenmpi-dev openmpi-bin, libmpich-dev mpich)"

# Whatever happens, the namespaces go, with all that runs in them.
end_all() {
    for ns in a b; do
        pids=$(ip netns pids $tag-$ns 2>/dev/null)
        [ -n "$pids" ] && kill -9 $pids 2>/dev/null
    done
}
clean() {
    end_all
    for ns in a b sw; do ip netns del $tag-$ns 2>/dev/null; done
    rm -rf /tmp/ompi.$tag-*
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

rm -rf "$W"
mkdir -p "$W" "$B/logs"
for ns in sw a b; do
    ip netns add $tag-$ns 2>/dev/null || leave "ip netns add is refused"
    ip -n $tag-$ns link set lo up
done
ip -n $tag-sw link add name bridge0 type bridge 2>/dev/null || leave "no bridge in this kernel"
ip -n $tag-sw link set bridge0 up
host=1
for ns in a b; do
    ip -n $tag-$ns link add eth0 type veth peer name to-$ns netns $tag-sw 2>/dev/null ||
        leave "no veth in this kernel"
    ip -n $tag-sw link set to-$ns master bridge0 up
    ip -n $tag-$ns addr add $net.$host/24 dev eth0
    ip -n $tag-$ns link set eth0 up
    host=$((host + 1))
done
cable() { ip -n $tag-sw link set to-b "$1"; } # up or down
slow() { # 1 Gbit/s both ways; fails where the kernel cannot
    for ns in a b; do
        tc -n $tag-$ns qdisc add dev eth0 root tbf rate 1gbit burst 256kb latency 50ms 2>/dev/null \
            || return 1
    done
}
fast() { for ns in a b; do tc -n $tag-$ns qdisc del dev eth0 root; done; }

# The program for the cut: sums until it is told to end, or an error. FOLDER/rank.R gets a line when
# it runs, and one when it has ended.
cat >"$W/loop.c" <<'END'
#define NEO_COMM_IMPLEMENTATION
#include "neo_comm.h"
static const char *folder;
static neo_status loop(neo_comm *comm, void *user) {
    static float x[100000], sum[100000];
    char path[1000];
    FILE *file = (FILE *)user, *stop = NULL;
    int64_t more = 1, steps = 0, n = sizeof x / sizeof x[0];
    snprintf(path, sizeof path, "%s/stop", folder);
    for (; more; steps++) {
        for (int64_t i = 0; i < n; i++) x[i] = (float)((i + steps) % 7 + neo_comm_rank(comm));
        NEO__TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, x, sum, n, NEO_F32, NULL));
        for (int64_t i = 0; i < n; i++)
            if (sum[i] != (float)(4 * ((i + steps) % 7) + 6))
                return neo_fail(NEO_ERR_NUMERIC, "a sum is wrong");
        if (steps == 20) {
            fprintf(file, "runs, on node %d\n", neo_comm_node(comm, neo_comm_rank(comm)));
            fflush(file);
        }
        if (neo_comm_rank(comm) == 0 && (stop = fopen(path, "r")) != NULL) more = fclose(stop);
        NEO__TRY(neo_comm_broadcast(comm, &more, 1, NEO_I64, 0, NULL));
    }
    return NEO_OK;
}
int main(int argc, char **argv) {
    neo_comm_desc desc;
    char path[1000];
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank) rank = getenv("PMI_RANK");
    memset(&desc, 0, sizeof desc);
    if (argc != 3 || !rank) return 2;
    folder = argv[1];
    desc.timeout_ms = atoi(argv[2]);
    snprintf(path, sizeof path, "%s/rank.%s", folder, rank);
    FILE *file = fopen(path, "w");
    if (!file) return 2;
    neo_status status = neo_comm_init_env(&desc, loop, file);
    fprintf(file, "ended: %s: %s\n", neo_status_string(status),
            status == NEO_OK ? "" : neo_last_error());
    fclose(file);
    return status != NEO_OK;
}
END

# agent [OPTIONS] HOST COMMAND...: a command on a host, as ssh would. mpirun runs on a, and reaches
# b by it.
cat >"$W/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in *.1) ns=a ;; *) ns=b ;; esac
shift
exec ip netns exec $tag-\$ns unshare --uts sh -c "hostname $tag-\$ns; \$*"
END
chmod +x "$W/agent"

# start SECONDS PROGRAM...: $each ranks on each host; what they say is in $W/out.
each=2
start() {
    seconds=$1
    shift
    case $kind in
    openmpi) options="--host $net.1:$each,$net.2:$each --enable-recovery
        --mca plm_rsh_agent $W/agent --mca pml ob1
        --mca btl tcp,self --mca btl_tcp_if_include $net.0/24 --mca oob_tcp_if_include $net.0/24" ;;
    mpich) options="-hosts $net.1:$each,$net.2:$each -disable-auto-cleanup
        -launcher ssh -launcher-exec $W/agent -iface eth0" ;;
    esac
    timeout -k 5 "$seconds" "$W/agent" $net.1 mpirun.$kind $options -n $((2 * each)) "$@" \
        >"$W/out" 2>&1 </dev/null
}
# begin MS: the loop with a timeout, in the background; returns when all ranks run.
begin() {
    rm -f "$W"/rank.* "$W/stop"
    start 90 "$P/loop" "$W" "$1" &
    job=$!
    for i in $(seq 300); do
        [ "$(cat "$W"/rank.* 2>/dev/null | grep -c runs)" = 4 ] && return 0
        sleep 0.1
    done
    fail "$kind: the loop does not start: $(head -5 "$W/out")"
    return 1
}
# ended SECONDS: waits until all ranks have; prints how many have, and the tenths of seconds that
# took.
ended() {
    for i in $(seq $(($1 * 10))); do
        n=$(cat "$W"/rank.* | grep -c '^ended')
        [ "$n" = 4 ] && break
        sleep 0.1
    done
    echo "$n $i"
}

for kind in $kinds; do
    P=$B/mpi/$kind
    log=$B/logs/netns_$kind.build
    if ! "$MAKE" --no-print-directory B="$P" MPICC=mpicc.$kind CFLAGS=-O1 \
        "$P/tests/comm/collectives_mpi" "$P/allreduce_mpi" "$P/bench/comm_mpi" >"$log" 2>&1 ||
        ! mpicc.$kind -std=c11 -O1 -I. -DNEO_COMM_MPI -o "$P/loop" "$W/loop.c" "$P/tests/neo.a" \
        -lm -pthread >>"$log" 2>&1
    then
        fail "$kind: does not build (see $log)"
        continue
    fi

    if [ $kind = openmpi ]; then # MPICH 4.0 hangs in MPI_Finalize over UCX's TCP, without neo too
        start 120 "$P/tests/comm/collectives_mpi" 100
        status=$?
        if [ $status = 0 ] && grep -qE '^comm/collectives: [1-9][0-9]* passed, 0 failed' "$W/out"; \
            then
            pass
        else
            fail "$kind: comm/collectives on two hosts: status $status"
            head -6 "$W/out"
            continue
        fi
        start 60 "$P/allreduce_mpi"
        threads=$("$P/allreduce_mpi" --ranks 4 2>&1 | grep '^state')
        same "$kind: allreduce on two hosts" "$(grep '^state' "$W/out")" "$threads"

        if slow; then
            each=1
            start 120 "$P/bench/comm_mpi" --overlap --quick
            each=2
            hidden=$(sed -n 's/^bench comm.mpi.overlap.hidden value=\([0-9]*\).*/\1/p' "$W/out")
            if [ "${hidden:-0}" -ge 60 ]; then
                pass
                echo "netns: $kind, 1 Gbit/s: $hidden % of an asynchronous all_to_all hidden" \
                    "behind computation"
            else
                fail "$kind: $hidden % of an asynchronous call are hidden"
                head -6 "$W/out"
            fi
            fast
        else
            skip "overlap over a slow link: tc or its tbf is missing"
        fi

        if begin 20000; then
            same "$kind: hosts are nodes" \
                "$(cat "$W"/rank.* | sed -n 's/runs, on node //p' | sort | tr -d '\n')" 0011
            cable down
            sleep 1
            cable up
            sleep 1
            echo >"$W/stop"
            same "$kind: a link that comes back: ranks that end" "$(ended 40 | sed 's/ .*//')" 4
            same "$kind: a link that comes back: no error" \
                "$(cat "$W"/rank.* | grep -c '^ended: ok')" 4
        fi
        end_all
        wait $job
    fi

    if begin 3000; then
        cable down
        took=$(ended 30)
        same "$kind: a link that is cut: ranks that end" "${took% *}" 4
        echo "netns: $kind, a link that is cut: ranks ended after ${took#* } tenths of a second" \
            "(timeout: 30), each with"
        cat "$W"/rank.* | grep '^ended' | cut -c1-150
        n=$(grep -lE '^ended: another rank (did not come in time|is lost)' "$W"/rank.* | wc -l)
        same "$kind: a link that is cut: ranks with an error that says so" "$n" 4
        cable up
    fi
    end_all
    wait $job
done
finish comm/netns
