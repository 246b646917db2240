/* SPDX-License-Identifier: MIT
 *
 * Moves a waiting rank away from a core that several ranks share while others are free, or have
 * fewer. Each message between ranks on one core costs a switch between them, ten times as much as
 * otherwise, and the system may leave it so for seconds. Called by comm while a call waits.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include <ringforge/ringforge.h>

#include "base/base.h"
#include "cpu_affinity.h"
#include "shm.h"

#define AGAIN_NS 20000000ull
enum { LOOK_EVERY = 8, LOOK_SELDOM = 64 }; /* the latter of ranks that outnumber the cores */

static void publish_core(struct rf_shm *h, int core)
{
    __atomic_store_n(&((struct rf_shm_header *)h->base)->core, (uint32_t)core + 1,
                     __ATOMIC_RELAXED);
}

/* Where a peer was when it last waited; -1: unknown. */
static int core_of(const struct rf_shm *h, int rank)
{
    const struct rf_shm_header *header =
        (const struct rf_shm_header *)rf_shm_peer_of(h, rank)->base;
    uint32_t published = __atomic_load_n(&header->core, __ATOMIC_RELAXED);
    return published > 0 && published <= CPU_SETSIZE ? (int)published - 1 : -1;
}

/* How many ranks last waited on each core, this one on `core`. */
static void count_ranks(const struct rf_shm *h, int core, uint16_t *ranks)
{
    memset(ranks, 0, CPU_SETSIZE * sizeof(*ranks));
    for (int i = 0; i < h->count; i++) {
        int used = h->ranks[i] == h->transport.rank ? core : core_of(h, h->ranks[i]);
        if (used >= 0)
            ranks[used]++;
    }
}

/* No higher rank waits on this core. */
static bool is_highest(const struct rf_shm *h, int core)
{
    for (int i = 0; i < h->count; i++)
        if (h->ranks[i] > h->transport.rank && core_of(h, h->ranks[i]) == core)
            return false;
    return true;
}

bool rf_shm_emptier(const uint16_t *ranks, int core, const cpu_set_t *mine, cpu_set_t *out)
{
    unsigned fewest = ranks[core];
    CPU_ZERO(out);
    for (size_t c = 0; c < CPU_SETSIZE; c++) {
        if (!CPU_ISSET(c, mine) || ranks[c] > fewest)
            continue;
        if (ranks[c] < fewest)
            CPU_ZERO(out);
        fewest = ranks[c];
        CPU_SET(c, out);
    }
    return fewest + 2u <= ranks[core];
}

/* What the thread may use is the same afterwards. */
static void move_away(int core, const uint16_t *ranks)
{
    cpu_set_t mine, best;
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0 ||
        !rf_shm_emptier(ranks, core, &mine, &best) ||
        sched_setaffinity(0, sizeof(best), &best) != 0)
        return;
    if (sched_setaffinity(0, sizeof(mine), &mine) != 0)
        rf_log("transport", 1, "this thread's cores cannot be set back: %s", strerror(errno));
}

/* Only the highest rank on a core moves. */
bool rf_shm_idle(struct rf_transport *t)
{
    struct rf_shm *h = (struct rf_shm *)t;
    if (h->idle++ % (t->yield ? LOOK_SELDOM : LOOK_EVERY) != 0)
        return t->yield || h->crowded;
    uint16_t ranks[CPU_SETSIZE];
    int core = sched_getcpu();
    if (core < 0 || core >= CPU_SETSIZE)
        return true;
    publish_core(h, core);
    count_ranks(h, core, ranks);
    h->crowded = ranks[core] > 1;
    uint64_t now = rf_now_ns();
    if (!h->crowded || !is_highest(h, core) || now < h->may_move_ns)
        return t->yield || h->crowded;
    h->may_move_ns = now + AGAIN_NS;
    move_away(core, ranks);
    publish_core(h, sched_getcpu());
    return true;
}
