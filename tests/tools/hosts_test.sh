#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Several hosts, as network namespaces on a bridge: a job over IPv4, over IPv6 and past an interface that
# leads nowhere; without a key; and one of its hosts cut off, or one of its ranks killed, in
# the midst of an operation. The same with two ranks on each of two hosts, whose bytes between
# hosts are counted. Run by forge. 77: namespaces cannot be made here.
#
#   hosts_test.sh PROGRAM FOLDER
set -eu

program=$1 folder=$2
ranks=4
rm -rf "$folder"
mkdir -p "$folder"
here=$(cd "$(dirname "$0")" && pwd)
. "$here/spaces.sh"
fail() {
    echo "$1"
    tail -n 3 "$folder"/*.out 2>/dev/null || true
    exit 1
}

trap spaces_down EXIT
trap 'exit 143' INT TERM
spaces_up $ranks "$folder" || exit $?

export WORLD_SIZE=$ranks RF_JOB_KEY=a-key-of-this-test HFI_NO_BACKTRACE=1
port=29400
layout="1 2 3 4" # the host of each rank
# job NAME ADDRESS ARGUMENTS...: starts the ranks
job() {
    name=$1 address=$2
    shift 2
    port=$((port + 1))
    i=0
    for host in $layout; do
        i=$((i + 1))
        (
            status=0
            RANK=$((i - 1)) MASTER_ADDR=$address MASTER_PORT=$port timeout -k 5 100 \
                ip netns exec "$(space "$host")" "$program" "$@" >"$folder/$name-$i.out" 2>&1 || status=$?
            echo "$status $(date +%s)" >"$folder/$name-$i.end"
        ) &
    done
}
# ended NAME STATUS: waits; every rank must have ended so
ended() {
    wait
    for i in $(seq $ranks); do
        read -r status _ <"$folder/$1-$i.end"
        [ "$status" = "$2" ] || fail "$1: rank $((i - 1)) ended with $status, not $2"
    done
}
right() { # every row of rank 0 ends with no wrong element
    awk '$3 == "f32" { rows++; bad += $NF != 0 } END { exit !(rows == 3 && !bad) }' "$folder/$1-1.out" ||
        fail "$1: wrong elements, or not all sizes"
}
sums="bench all_reduce -b 4 -e 256K -f 256 -n 3"

# shellcheck disable=SC2086
for provider in tcp ofi-tcp "tcp;ofi_rxm"; do
    job "ipv4-${provider#*;}" "$(address 1)" $sums --provider "$provider"
    ended "ipv4-${provider#*;}" 0
    right "ipv4-${provider#*;}"
done
for i in $(seq $ranks); do # listed before eth0, up, and leading nowhere
    ip -n "$(space "$i")" link add aaa0 type veth peer name aaa1
    ip -n "$(space "$i")" addr add "192.168.9.$i/24" dev aaa0
    ip -n "$(space "$i")" link set aaa0 up
    ip -n "$(space "$i")" link set aaa1 up
done
# shellcheck disable=SC2086
job two-interfaces "$(address 1)" $sums --provider tcp
ended two-interfaces 0
right two-interfaces
if ip -n "$(space 1)" -6 addr show dev eth0 | grep -q fd77; then
    # shellcheck disable=SC2086
    job ipv6 fd77::1 $sums --provider tcp
    ended ipv6 0
    right ipv6
fi

key=$RF_JOB_KEY
unset RF_JOB_KEY
# shellcheck disable=SC2086
job no-key "$(address 1)" $sums --provider tcp
ended no-key 1
grep -q 'set RF_JOB_KEY' "$folder"/no-key-1.out || fail "no-key: rank 0 does not say what to set"
export RF_JOB_KEY=$key

network=tcp lost=1 named=$((ranks - 1)) # what carries it, how many last ranks are lost, which of them
# fault NAME SECONDS COMMAND...: in the midst of an operation; all but the last rank must name it in time
fault() {
    name=$1 most=$2
    shift 2
    job "$name" "$(address 1)" bench all_reduce -b 256K -e 256K -n 100000 -w 0 --provider $network
    sleep 4
    start=$(date +%s)
    "$@"
    wait
    for i in $(seq $((ranks - lost))); do
        read -r status end <"$folder/$name-$i.end"
        case $name-$status in pair-killed-137) continue ;; esac # who was killed
        [ "$status" = 1 ] || fail "$name: rank $((i - 1)) ended with $status, not 1"
        grep -Eq "rank ($named) died or left" "$folder/$name-$i.out" ||
            fail "$name: rank $((i - 1)) does not name rank $named"
        [ $((end - start)) -le "$most" ] || fail "$name: rank $((i - 1)) ended after $((end - start)) s"
    done
}
kill_last() {
    ip netns pids "$(space $ranks)" | xargs kill -9
}
fault killed 5 kill_last

# Two ranks on each of two hosts: memory within, the network between.
layout="1 1 2 2" network=auto
# shellcheck disable=SC2086
job pairs "$(address 1)" $sums
ended pairs 0
right pairs
grep -q 'provider shm+[a-z]*: memory that ranks share within each of 2 hosts; between them' \
    "$folder/pairs-1.out" || fail "pairs: another transport"
# crossed ALGORITHM BYTES: each host sends this number to the other in every all-reduce of 4 MiB, which takes
# too long to be timed in batches: of 8 timed, 1 before and 2 checked, out of place and in place. Ranks send
# up to 2 KiB in all to agree about the time.
crossed() {
    export RF_MEASURE=0 RF_LOG=transport:2
    job "crossed-$1" "$(address 1)" bench all_reduce -b 4M -e 4M -n 8 -w 0 --algorithm "$1"
    ended "crossed-$1" 0
    unset RF_MEASURE RF_LOG
    for i in 1 3; do
        sed -n 's/.*within the host and \([0-9]*\) to others.*/\1/p' "$folder/crossed-$1-$i.out" \
            "$folder/crossed-$1-$((i + 1)).out" |
            awk -v all=$((22 * $2)) '{ sum += $1; ranks++ } END { exit !(ranks == 2 && sum >= all && sum < all + 2048) }' ||
            fail "crossed-$1: not $2 bytes from host to host for each all-reduce"
    done
}
crossed hierarchical 4194304 # the whole, once each way; a ring's last rank of a host sends half as much again
crossed ring 6291456
# One of the two ranks of the last host.
kill_one() {
    ps -o pid=,args= -p "$(ip netns pids "$(space 2)" | paste -sd,)" | awk '$2 !~ /timeout/ { print $1; exit }' | xargs kill -9
}
named="2|3"
fault pair-killed 5 kill_one
# A rank that dies closes its connections. A host that is cut off does not: it is silent for 10 s.
lost=2
fault cut 20 ip link set "rf$spaces_id-2" down
echo "4 hosts: IPv4, IPv6, an interface too many, no key; on 2 hosts of 2 ranks bytes as foretold; a rank killed and a host cut off were named by all"
