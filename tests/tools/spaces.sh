# SPDX-License-Identifier: MIT
# shellcheck shell=sh
#
# Several hosts on one machine, as network namespaces on a bridge. Read by the scripts of this folder.
#
#   spaces_up COUNT FOLDER    returns 77 (and says why) if namespaces cannot be made
#   on HOST COMMAND...        runs it there (1 to COUNT), with a host name of its own
#   address HOST
#   spaces_down

spaces_id=$$
spaces_count=0
spaces_net=10.$((spaces_id % 200 + 20)).$((spaces_id / 200 % 250))
space() { echo "rfh$spaces_id-$1"; }
host_name() { echo "rfn$1"; }
address() { echo "$spaces_net.$1"; }

spaces_down() {
    for s_host in $(seq $spaces_count); do
        ip netns pids "$(space "$s_host")" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
        ip netns del "$(space "$s_host")" 2>/dev/null || true
    done
    ip link del "rfb$spaces_id" 2>/dev/null || true
}

spaces_up() {
    command -v ip >/dev/null && [ "$(id -u)" = 0 ] || {
        echo "needs root, and ip of iproute2"
        return 77
    }
    spaces_count=$1
    {
        ip netns add "$(space 1)" && ip netns exec "$(space 1)" unshare -u true &&
            ip link add "rfb$spaces_id" type bridge &&
            ip link add "rfx$spaces_id" type veth peer name "rfy$spaces_id" &&
            ip link del "rfx$spaces_id"
    } 2>"$2/refused" || {
        echo "network namespaces cannot be made here: $(head -n 1 "$2/refused")"
        return 77
    }
    ip link set "rfb$spaces_id" up
    for s_host in $(seq "$spaces_count"); do
        s_space=$(space "$s_host")
        [ "$s_host" = 1 ] || ip netns add "$s_space"
        ip link add "rf$spaces_id-$s_host" type veth peer name eth0 netns "$s_space"
        ip link set "rf$spaces_id-$s_host" master "rfb$spaces_id" up
        ip -n "$s_space" addr add "$(address "$s_host")/24" dev eth0
        ip -n "$s_space" -6 addr add "fd77::$s_host/64" dev eth0 nodad 2>/dev/null || true
        ip -n "$s_space" link set eth0 up
        ip -n "$s_space" link set lo up
    done
}

# Launchers tell hosts apart by their names. (ip netns exec would hide the control groups of /sys.)
on() {
    o_host=$1
    shift
    # shellcheck disable=SC2016
    nsenter --net="/run/netns/$(space "$o_host")" unshare -u sh -c 'hostname "$1"; shift; exec "$@"' sh \
        "$(host_name "$o_host")" "$@"
}
