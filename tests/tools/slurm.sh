# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# A Slurm of one's own, with nothing of it outside a folder: munged, slurmctld and slurmd, started by hand
# as root. Read by launchers_test.sh, after spaces.sh.
#
#   slurm_up HOSTS FOLDER     1: on this host; more: on those that spaces_up has made
#   in_slurm COMMAND...       if srun can be called
#   slurm_down

slurm_folder=
slurm_hosts=0

slurm_on() { # HOST COMMAND...
    if [ "$slurm_hosts" = 1 ]; then
        shift
        "$@"
    else
        on "$@"
    fi
}
in_slurm() { slurm_on 1 env SLURM_CONF="$slurm_folder/slurm.conf" "$@"; }

slurm_down() {
    [ -n "$slurm_folder" ] || return 0
    tail -n 20 "$slurm_folder"/*.log >>"$slurm_log" 2>&1 || true
    for l_file in "$slurm_folder"/*.pid; do
        [ -s "$l_file" ] && kill "$(cat "$l_file")" 2>/dev/null || true
    done
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        l_left=
        for l_file in "$slurm_folder"/*.pid; do
            [ -s "$l_file" ] && kill -0 "$(cat "$l_file")" 2>/dev/null && l_left=yes
        done
        [ -n "$l_left" ] || break
        sleep 0.5
    done
    rm -rf "$slurm_folder"
    slurm_folder=
}

# munged wants no folder above its socket that others may write to, so it is not in the build tree.
slurm_up() {
    slurm_hosts=$1
    slurm_log=$2/slurm.out
    slurm_folder=$(mktemp -d /run/ringforge-slurm.XXXXXX)
    chmod 755 "$slurm_folder"
    (
        umask 077
        head -c 1024 /dev/urandom >"$slurm_folder/munge.key"
    )
    munged --key-file="$slurm_folder/munge.key" --socket="$slurm_folder/munge.sock" \
        --pid-file="$slurm_folder/munged.pid" --log-file="$slurm_folder/munged.log" \
        --seed-file="$slurm_folder/munge.seed" >>"$slurm_log" 2>&1 || return 1
    {
        cat <<END
ClusterName=ringforge
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm_folder/munge.sock
CredType=cred/munge
SlurmctldPort=17817
SlurmdPort=17818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool-%n
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmdPidFile=$slurm_folder/slurmd-%n.pid
SlurmctldLogFile=$slurm_folder/slurmctld.log
SlurmdLogFile=$slurm_folder/slurmd-%n.log
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
END
        if [ "$slurm_hosts" = 1 ]; then
            echo "SlurmctldHost=$(hostname -s)(127.0.0.1)"
            echo "NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN"
        else
            echo "SlurmctldHost=$(host_name 1)($(address 1))"
            for l_host in $(seq "$slurm_hosts"); do
                echo "NodeName=$(host_name "$l_host") NodeAddr=$(address "$l_host") CPUs=$(nproc) State=UNKNOWN"
            done
        fi
    } >"$slurm_folder/slurm.conf"
    # PMIx of several nodes must not meet in one folder, so each slurmd sees another one there; and all
    # know each other's names.
    echo "PMIxCliTmpDirBase=$slurm_folder/pmix" >"$slurm_folder/mpi.conf"
    mkdir "$slurm_folder/state" "$slurm_folder/pmix"
    cp /etc/hosts "$slurm_folder/hosts" 2>/dev/null || echo "127.0.0.1 localhost" >"$slurm_folder/hosts"
    for l_host in $(seq "$slurm_hosts"); do
        [ "$slurm_hosts" = 1 ] || echo "$(address "$l_host") $(host_name "$l_host")" >>"$slurm_folder/hosts"
    done
    in_slurm slurmctld >>"$slurm_log" 2>&1 || return 1
    for l_host in $(seq "$slurm_hosts"); do
        l_name=$(hostname -s)
        [ "$slurm_hosts" = 1 ] || l_name=$(host_name "$l_host")
        mkdir "$slurm_folder/spool-$l_name" "$slurm_folder/pmix-$l_name"
        if [ "$slurm_hosts" = 1 ]; then # nobody to be kept apart from, so no mounts
            env SLURM_CONF="$slurm_folder/slurm.conf" slurmd -N "$l_name" >>"$slurm_log" 2>&1 ||
                return 1
            continue
        fi
        # shellcheck disable=SC2016
        slurm_on "$l_host" env SLURM_CONF="$slurm_folder/slurm.conf" unshare -m \
            sh -c 'mount --bind "$1/pmix-$2" "$1/pmix"; mount --bind "$1/hosts" /etc/hosts
            exec slurmd -N "$2"' sh "$slurm_folder" "$l_name" >>"$slurm_log" 2>&1 || return 1
    done
    for _ in $(seq 60); do
        [ "$(in_slurm sinfo -h -t idle -o %D 2>>"$slurm_log" | tr -d ' ')" = "$slurm_hosts" ] && return 0
        sleep 0.5
    done
    return 1
}
