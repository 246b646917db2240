#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The same collective by ringforge and by what else this machine has (MPI libraries with a compiler
# wrapper, Gloo), in turns, and the ratios of the medians: above 1, ringforge is quicker.
#
#   bench/peers/compare.sh OP RANKS [TURNS]     OP: all_reduce all_gather reduce_scatter broadcast
#
# In the environment: BUILD (build), PROVIDERS ("net shm shm-private": the last is shm on memory of
# the caller's own, which is what the peers work on; ofi-shm is libfabric's), PEERS ("openmpi mpich gloo": only
# these), LEAST (4), MOST (67108864), FACTOR (4), SAMPLES (11), SECONDS_EACH (120: a turn of a peer that takes
# longer is stopped, because MPICH may never end with more ranks than cores).
set -eu
cd "$(dirname "$0")/../.."
op=${1:?use: compare.sh OP RANKS [TURNS]} ranks=${2:?use: compare.sh OP RANKS [TURNS]} turns=${3:-3}
build=${BUILD:-build} providers=${PROVIDERS:-net shm shm-private}
least=${LEAST:-4} most=${MOST:-67108864} factor=${FACTOR:-4} samples=${SAMPLES:-11}
peers_wanted=${PEERS:-openmpi mpich gloo} seconds=${SECONDS_EACH:-120}
out=$build/peers
mkdir -p "$out"
rm -f "$out"/*.times
export HFI_NO_BACKTRACE=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

have="" # peers that are there, over the networks asked for
networks=$(for provider in $providers; do
    case $provider in
    *shm*) echo "" ;;
    *) echo -tcp ;;
    esac
done | sort -u)
wanted() { # PEER
    case " $peers_wanted " in
    *" $1 "*) ;;
    *) return 1 ;;
    esac
}
for mpi in openmpi mpich; do
    wanted $mpi && command -v mpicc.$mpi >/dev/null && command -v mpirun.$mpi >/dev/null || continue
    mpicc.$mpi -O2 -o "$out/$mpi" bench/peers/mpi.c || continue
    for network in "" -tcp; do
        printf '%s\n' "$networks" | grep -qx -e "$network" && have="$have $mpi$network"
    done
done
if wanted gloo && [ "$op" != reduce_scatter ] && printf '%s\n' "$networks" | grep -qx -e -tcp &&
    g++ -std=c++17 -O2 -o "$out/gloo" bench/peers/gloo.cc -lgloo 2>"$out/gloo.log"; then
    have="$have gloo-tcp"
fi
[ -n "$have" ] || echo "no peers: install libopenmpi-dev, libmpich-dev or libgloo-dev" >&2

run() { # run NAME: lines of bytes, microseconds, wrong elements
    case $1 in
    openmpi-tcp) timeout -k 2 "$seconds" mpirun.openmpi --oversubscribe --mca btl tcp,self -n "$ranks" "$out/openmpi" $args ;;
    openmpi) timeout -k 2 "$seconds" mpirun.openmpi --oversubscribe -n "$ranks" "$out/openmpi" $args ;;
    mpich-tcp) UCX_TLS=tcp,self timeout -k 2 "$seconds" mpirun.mpich -n "$ranks" "$out/mpich" $args ;;
    mpich) timeout -k 2 "$seconds" mpirun.mpich -n "$ranks" "$out/mpich" $args ;;
    gloo-tcp)
        store=$(mktemp -d)
        PEER_STORE=$store "$build/ringforge" run -n "$ranks" -- "$out/gloo" $args |
            sed 's/^\[[0-9]*\] //'
        rm -rf "$store"
        ;;
    *)
        case $1 in
        *-private) buffers=--private-buffers ;;
        *) buffers= ;;
        esac
        # shellcheck disable=SC2086
        "$build/ringforge" bench "$op" --ranks "$ranks" --provider "${1%-private}" $buffers -b "$least" -e "$most" \
            -f "$factor" -n "$samples" --in-place 0 --json |
            awk -F '[:,]' '/"bytes"/ { b = $2 } /"time_us"/ { t = $2 } /"wrong"/ { print b + 0, t + 0, $2 + 0 }'
        ;;
    esac
}
args="$op $least $most $factor $samples"
for turn in $(seq "$turns"); do
    for name in $providers $have; do
        printf '\r%s %d of %d   ' "$name" "$turn" "$turns" >&2
        # shellcheck disable=SC2086
        run "$name" >>"$out/$name.times" 2>"$out/$name.log" || {
            echo "$name failed: see $out/$name.log" >&2
        }
    done
done
printf '\r%40s\r' "" >&2

echo "$op of f32 among $ranks ranks, microseconds (medians of $turns turns), and peer / ringforge"
for provider in $providers; do
    peers=""
    for name in $have; do # each provider beside those that use the same network
        case $provider:$name in
        *shm*:*-tcp) ;;
        *shm*:* | *:*-tcp) peers="$peers $name" ;;
        esac
    done
    files="$out/$provider.times"
    for name in $peers; do files="$files $out/$name.times"; done
    # shellcheck disable=SC2086
    awk -v names="$provider$peers" '
        function median(list, n, a, i, j, t) {
            n = split(list, a, " ")
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && a[j] + 0 < a[j - 1] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
            return a[int((n + 1) / 2)]
        }
        FNR == 1 { file++ }
        {
            if (!($1 in seen)) { seen[$1] = 1; order[++rows] = $1 }
            times[file, $1] = times[file, $1] " " $2
            wrong += $3
        }
        END {
            count = split(names, name, " ")
            printf "%12s %12s", "bytes", name[1]
            for (f = 2; f <= count; f++) printf " %20s", name[f]
            print ""
            for (r = 1; r <= rows; r++) {
                own = median(times[1, order[r]])
                if (!own) continue
                printf "%12d %12.1f", order[r], own
                for (f = 2; f <= count; f++) {
                    t = median(times[f, order[r]])
                    if (t) printf " %12.1f %6.2fx", t, t / own; else printf " %20s", "-"
                }
                print ""
            }
            print "wrong elements: " wrong + 0
        }' $files
    echo
done
