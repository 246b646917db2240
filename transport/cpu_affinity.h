/* SPDX-License-Identifier: MIT
 *
 * Where ranks of one host wait: whether a waiting rank shares its core with others, and its way to
 * a core that is free or has fewer. Each message between ranks on one core costs a switch between
 * them, ten times as much as otherwise, and the system may leave it so for seconds. Ranks that
 * outnumber the cores have assigned ones: neighbours share a core, so that a root is not alone on
 * one while all that send to it share another. Used by the transports that know on which cores
 * their peers are.
 */
#ifndef RF_TRANSPORT_CPU_AFFINITY_H
#define RF_TRANSPORT_CPU_AFFINITY_H

#include "transport.h"

enum { RF_CPU_CORES = 1024 };

struct rf_cpu_affinity {
    bool crowded; /* another rank waits on this core */
    uint64_t may_look_ns, may_move_ns;
    int index, count; /* this rank's place among the ranks of this host; count 0: unknown */
    int assigned;     /* the core that rf_cpu_assigned has last given, plus 1; 0: none */
    /* Where a rank was when it was last seen; -1: unknown, or not on this host. */
    int (*core_of)(struct rf_transport *t, int rank);
    /* Tells the others where this one is; NULL: they see it. */
    void (*publish)(struct rf_transport *t, int core);
};

/* What rf_transport_ops.idle returns. Only the highest rank on a core moves, unless the ranks
 * outnumber the cores: then each goes to the one that it is assigned. */
bool rf_cpu_idle(struct rf_cpu_affinity *affinity, struct rf_transport *t);

/* Those of the cores `mine` where fewest ranks wait; whether to go there from `core`: they must be
 * two fewer, since this one counts there, too. ranks: how many wait on each, this one on `core`. */
bool rf_cpu_emptier(const uint16_t ranks[RF_CPU_CORES], int core, const bool mine[RF_CPU_CORES],
                    bool out[RF_CPU_CORES]);

/* The one of the cores `mine` that the index-th of `count` ranks is assigned; -1: they do not
 * outnumber the cores. Each core has as many ranks as any other, or one more, and they are
 * neighbours. */
int rf_cpu_assigned(const bool mine[RF_CPU_CORES], int index, int count);

#endif
