/* SPDX-License-Identifier: MIT
 *
 * Placement of the waiting ranks of one host: whether a waiting rank shares its core with others,
 * and moving it to a core that is free or has fewer. Each message between ranks on one core costs a
 * context switch, ten times the usual time, and the system may leave it so for seconds. Ranks that
 * outnumber the cores have assigned cores: neighbours share a core, so that a root is not alone on
 * one while all its senders share another. Used by transports that know the cores of their peers.
 */
#ifndef RF_TRANSPORT_CPU_AFFINITY_H
#define RF_TRANSPORT_CPU_AFFINITY_H

#include "transport.h"

enum { RF_CPU_CORES = 1024 };

struct rf_cpu_affinity {
    bool crowded; /* another rank waits on this core */
    uint64_t may_look_ns, may_move_ns;
    int index, count; /* this rank's index among the ranks of this host; count 0: unknown */
    int assigned;     /* the last result of rf_cpu_assigned, plus 1; 0: none */
    /* The core on which a rank was last seen; -1: unknown, or on another host. */
    int (*core_of)(struct rf_transport *t, int rank);
    /* Publishes this rank's core; NULL: the others can see it. */
    void (*publish)(struct rf_transport *t, int core);
};

/* The result of rf_transport_ops.idle. Only the highest rank on a core moves, unless ranks
 * outnumber the cores: then each moves to its assigned core. */
bool rf_cpu_idle(struct rf_cpu_affinity *affinity, struct rf_transport *t);

/* The cores of `mine` on which the fewest ranks wait. Returns whether to move there from `core`:
 * they must have two ranks fewer, because this one would be added. ranks: the number on each core,
 * this rank counted on `core`. */
bool rf_cpu_emptier(const uint16_t ranks[RF_CPU_CORES], int core, const bool mine[RF_CPU_CORES],
                    bool out[RF_CPU_CORES]);

/* The core of `mine` assigned to the index-th of `count` ranks; -1: ranks do not outnumber the
 * cores. Each core has the same number of ranks, or one more, and they are neighbours. */
int rf_cpu_assigned(const bool mine[RF_CPU_CORES], int index, int count);

#endif
