/* SPDX-License-Identifier: MIT
 *
 * Ranks that have come to share a core though others are free: each message between them then costs
 * a switch between the two, ten times what it costs otherwise, and the system may leave it so for
 * seconds. Whoever waits long looks where the others run, and steps aside. Called by comm while a
 * call waits.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include <errno.h>
#include <sched.h>

#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "host.h"

#define AGAIN_NS 20000000ull
enum { LOOK_EVERY = 8 };

static void tell(struct rf_host *h, int core)
{
    __atomic_store_n(&((struct rf_host_header *)h->base)->core, (uint32_t)core + 1,
                     __ATOMIC_RELAXED);
}

/* Where a peer was when it last waited; -1: unknown. */
static int core_of(const struct rf_host *h, int rank)
{
    const struct rf_host_header *header =
        (const struct rf_host_header *)rf_host_peer_of(h, rank)->base;
    uint32_t told = __atomic_load_n(&header->core, __ATOMIC_RELAXED);
    return told > 0 && told <= CPU_SETSIZE ? (int)told - 1 : -1;
}

/* The lowest other rank that waits on this core; -1: none. */
static int neighbour(const struct rf_host *h, int core)
{
    for (int i = 0; i < h->count; i++)
        if (h->ranks[i] != h->transport.rank && core_of(h, h->ranks[i]) == core)
            return h->ranks[i];
    return -1;
}

/* To a core of this thread's where no rank waits, if there is one. What the thread may use is the
 * same afterwards. */
static void step_aside(struct rf_host *h, int core)
{
    cpu_set_t mine, others;
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
        return;
    others = mine;
    CPU_CLR((size_t)core, &others);
    for (int i = 0; i < h->count; i++) {
        int rank = h->ranks[i], used = rank == h->transport.rank ? -1 : core_of(h, rank);
        if (used >= 0)
            CPU_CLR((size_t)used, &others);
    }
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others) != 0)
        return;
    if (sched_setaffinity(0, sizeof(mine), &mine) != 0)
        rf_log("transport", 1, "this thread's cores cannot be set back: %s", strerror(errno));
}

/* The lower rank stays. */
bool rf_host_idle(struct rf_transport *t)
{
    struct rf_host *h = (struct rf_host *)t;
    if (t->yield || h->idle++ % LOOK_EVERY != 0)
        return t->yield || h->crowded;
    int core = sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE)
        return true;
    tell(h, core);
    int other = neighbour(h, core);
    h->crowded = other >= 0;
    if (other < 0 || other > t->rank)
        return h->crowded;
    uint64_t now = rf_now_ns();
    if (now < h->may_move_ns)
        return true;
    h->may_move_ns = now + AGAIN_NS;
    step_aside(h, core);
    tell(h, sched_getcpu());
    return true;
}
