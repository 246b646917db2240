#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Jobs started by real launchers: on this host, and across two hosts that are network namespaces, where
# ranks are given neither an address nor a key. Run by forge. 77: the launcher is not installed, or
# namespaces cannot be made. The last line says what was run.
#
#   launchers_test.sh PROGRAM FOLDER run|torchrun|openmpi|mpich|slurm
set -eu

program=$1 folder=$2 launcher=$3
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd) program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/spaces.sh"
. "$here/slurm.sh"

cleanup() {
    slurm_down
    spaces_down
}
trap cleanup EXIT
trap 'exit 143' INT TERM
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT RF_PORT RF_JOB_KEY RF_INTERFACE
export HFI_NO_BACKTRACE=1
limit='timeout -k 5 60'

fail() {
    echo "$launcher: $1"
    tail -n 15 "$folder/$2.out" 2>/dev/null || true
    exit 1
}
needs() {
    command -v "$1" >/dev/null && return 0
    echo "$1 is not installed"
    exit 77
}
sums="bench all_reduce -b 4 -e 256K -f 256 -n 3 --provider tcp"
# job NAME RANKS COMMAND...: it starts the program on that many ranks; every element must be right
job() {
    name=$1 ranks=$2
    shift 2
    "$@" >"$folder/$name.out" 2>&1 || fail "$name ended with $?" "$name"
    grep -q "all_reduce on $ranks rank" "$folder/$name.out" || fail "$name: not $ranks ranks" "$name"
    awk '/ f32 / { rows++; bad += $NF != 0 } END { exit !(rows == 3 && !bad) }' "$folder/$name.out" ||
        fail "$name: wrong elements, or not all sizes" "$name"
    # The job is one, not several of one rank.
    [ "$(grep -c 'all_reduce on' "$folder/$name.out")" = 1 ] || fail "$name: several jobs" "$name"
}
# Two at a time on one host must not meet.
pair() {
    name=$1
    shift
    (job "$name-a" "$@") &
    pair_pid=$!
    (job "$name-b" "$@") || exit 1
    wait $pair_pid || exit 1
}
# dies NAME COMMAND...: a rank ends without a word in the midst of it; the launcher must end in time
dies() {
    name=$1
    shift
    status=0
    "$@" >"$folder/$name.out" 2>&1 || status=$?
    case $status in 0 | 124) fail "$name ended with $status" "$name" ;; esac
}
cat >"$folder/one-dies.sh" <<END
#!/bin/sh
rank=\${SLURM_PROCID:-\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-\$RANK}}}
[ "\$rank" != 1 ] || exec timeout -s KILL 2 "$program" bench all_reduce -b 256K -e 256K -n 100000 -w 0
exec "$program" bench all_reduce -b 256K -e 256K -n 100000 -w 0
END
chmod +x "$folder/one-dies.sh"

# A launcher's ssh: the host is an address of ours.
cat >"$folder/agent.sh" <<END
#!/bin/sh
while case \$1 in -*) true ;; *) false ;; esac; do shift; done
host=\${1##*.}
shift
exec nsenter --net=/run/netns/rfh$spaces_id-\$host unshare -u sh -c 'hostname rfn'\$host'; eval "\$*"' sh "\$@"
END
chmod +x "$folder/agent.sh"
two_hosts() {
    spaces_up 2 "$folder" >"$folder/spaces" || {
        done_so_far="$done_so_far; NOT RUN across hosts: $(cat "$folder/spaces")"
        return 1
    }
}
done_so_far=

test_run() {
    # shellcheck disable=SC2086
    pair local 3 $limit "$program" run --ranks 3 -- "$program" $sums
    # shellcheck disable=SC2086
    dies dead $limit "$program" run --ranks 3 -- "$folder/one-dies.sh"
    done_so_far="3 ranks, two jobs at once, a dead rank"
}
test_torchrun() {
    needs torchrun
    # shellcheck disable=SC2086
    job local 3 $limit torchrun --standalone --nproc-per-node 3 --no-python "$program" $sums
    # shellcheck disable=SC2086
    dies dead $limit torchrun --standalone --nproc-per-node 3 --no-python "$folder/one-dies.sh"
    done_so_far="3 ranks, a dead rank"
}
test_openmpi() {
    needs mpirun.openmpi
    mpirun=$(command -v mpirun.openmpi)
    run="$limit $mpirun --allow-run-as-root --oversubscribe --bind-to none"
    # shellcheck disable=SC2086
    pair local 3 $run -n 3 "$program" $sums
    # shellcheck disable=SC2086
    dies dead $run -n 3 "$folder/one-dies.sh"
    done_so_far="3 ranks, two jobs at once, a dead rank"
    two_hosts || return 0
    # shellcheck disable=SC2086
    job hosts 4 on 1 $run --mca plm_rsh_agent "$folder/agent.sh" --mca plm rsh --mca routed direct \
        --mca orte_keep_fqdn_hostnames 1 --host "$(address 1):2,$(address 2):2" -n 4 "$program" $sums
    done_so_far="$done_so_far; 4 ranks on 2 hosts by PMIx"
}
test_mpich() {
    needs mpiexec.mpich
    mpiexec=$(command -v mpiexec.mpich)
    # shellcheck disable=SC2086
    pair local 3 $limit "$mpiexec" -n 3 "$program" $sums
    # shellcheck disable=SC2086
    dies dead $limit "$mpiexec" -n 3 "$folder/one-dies.sh"
    done_so_far="3 ranks, two jobs at once, a dead rank"
    two_hosts || return 0
    # shellcheck disable=SC2086
    job hosts 4 on 1 $limit "$mpiexec" -launcher ssh -launcher-exec "$folder/agent.sh" -iface eth0 \
        -hosts "$(address 1):2,$(address 2):2" -n 4 "$program" $sums
    # The ranks have found out who is on which host.
    # shellcheck disable=SC2086
    job by-hosts 4 on 1 $limit "$mpiexec" -launcher ssh -launcher-exec "$folder/agent.sh" -iface eth0 \
        -hosts "$(address 1):2,$(address 2):2" -n 4 "$program" $sums --algorithm hierarchical
    done_so_far="$done_so_far; 4 ranks on 2 hosts by PMI"
}
test_slurm() {
    for command in srun slurmctld slurmd munged; do needs $command; done
    [ "$(id -u)" = 0 ] || {
        echo "Slurm is started as root only"
        exit 77
    }
    if two_hosts; then slurm_hosts=2; else slurm_hosts=1; fi
    slurm_up $slurm_hosts "$folder" || { # that is not ours to mend
        tail -n 15 "$folder/slurm.out"
        echo "Slurm does not start here: see $folder/slurm.out"
        exit 77
    }
    # shellcheck disable=SC2086
    pair local 3 in_slurm $limit srun -N 1 -n 3 --overcommit "$program" $sums
    # shellcheck disable=SC2086
    dies dead in_slurm $limit srun -N 1 -n 3 --overcommit -K "$folder/one-dies.sh"
    done_so_far="slurmctld and $slurm_hosts slurmd: 3 ranks, two jobs at once, a dead rank$done_so_far"
    for mpi in pmi2 pmix; do
        # shellcheck disable=SC2086
        job local-$mpi 3 in_slurm $limit srun --mpi=$mpi -N 1 -n 3 --overcommit "$program" $sums
        [ $slurm_hosts = 2 ] || continue
        # shellcheck disable=SC2086
        job hosts-$mpi 4 in_slurm $limit srun --mpi=$mpi -N 2 -n 4 --overcommit "$program" $sums
    done
    [ $slurm_hosts = 2 ] || return 0
    # Without a board: on the first host, with a key of the user's.
    # shellcheck disable=SC2086
    job hosts-none 4 in_slurm env RF_JOB_KEY=a-key-of-this-test \
        $limit srun --mpi=none -N 2 -n 4 --overcommit "$program" $sums
    done_so_far="$done_so_far; 4 ranks on 2 hosts by PMI, by PMIx and with neither"
}

test_"$launcher"
echo "$done_so_far"
