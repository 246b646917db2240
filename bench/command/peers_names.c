/* SPDX-License-Identifier: MIT
 *
 * ringforge bench all --peers: names of what is compared, and which peer is the quickest.
 */
#include "peers.h"

const char *const peers_ops[PEERS_OPS] = {"all_reduce", "all_gather", "reduce_scatter",
                                          "broadcast",  "reduce",     "gather",
                                          "scatter",    "all_to_all"};
const char *const peers_networks[PEERS_NETWORKS] = {"tcp", "host"};
const char *const peers_sides[PEERS_SIDES] = {"library", "own", "openmpi", "mpich", "gloo"};

int peers_best(const struct peers_cell *sides, int state, int size)
{
    int best = -1;
    for (int side = PEERS_FIRST; side < PEERS_SIDES; side++)
        if (sides[side].median[state][size] > 0 &&
            (best < 0 || sides[side].median[state][size] < sides[best].median[state][size]))
            best = side;
    return best;
}

int peers_last_state(const struct peers *p)
{
    return bench_state_has_two(p->state) ? PEERS_DISTANT : PEERS_ALL;
}
