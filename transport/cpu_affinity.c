/* SPDX-License-Identifier: MIT
 *
 * Moves waiting ranks between cores; see cpu_affinity.h. Called by comm while a call waits.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include "cpu_affinity.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/base.h"

#define AGAIN_NS 2000000ull /* between two moves of a rank: the system may move it back */
static_assert(RF_CPU_CORES == CPU_SETSIZE, "as many as the system's sets have");
#define LOOK_NS 200000ull /* between two checks of who shares the core */

/* Counts the ranks that last waited on each core, including this one on `core`. Returns whether no
 * higher rank waits there. */
static bool count_ranks(const struct rf_cpu_affinity *affinity, struct rf_transport *t, int core,
                        uint16_t *ranks)
{
    bool is_highest = true;
    memset(ranks, 0, RF_CPU_CORES * sizeof(*ranks));
    for (int r = 0; r < t->size; r++) {
        const int used = r == t->rank ? core : affinity->core_of(t, r);
        if (used < 0 || used >= RF_CPU_CORES)
            continue;
        ranks[used]++;
        is_highest = is_highest && !(r > t->rank && used == core);
    }
    return is_highest;
}

bool rf_cpu_emptier(const uint16_t ranks[RF_CPU_CORES], int core, const bool mine[RF_CPU_CORES],
                    bool out[RF_CPU_CORES])
{
    unsigned fewest = ranks[core];
    for (int c = 0; c < RF_CPU_CORES; c++)
        fewest = mine[c] && ranks[c] < fewest ? ranks[c] : fewest;
    for (int c = 0; c < RF_CPU_CORES; c++)
        out[c] = mine[c] && ranks[c] == fewest;
    return fewest + 2u <= ranks[core];
}

int rf_cpu_assigned(const bool mine[RF_CPU_CORES], int index, int count)
{
    int cores = 0, before = 0;
    for (int c = 0; c < RF_CPU_CORES; c++)
        cores += mine[c];
    if (cores == 0 || count <= cores)
        return -1;
    const int wanted = (int)((int64_t)index * cores / count);
    for (int c = 0; c < RF_CPU_CORES; c++) {
        if (mine[c] && before == wanted)
            return c;
        before += mine[c];
    }
    return -1;
}

static bool find_allowed(cpu_set_t *mine, bool allowed[RF_CPU_CORES])
{
    if (sched_getaffinity(0, sizeof(*mine), mine) != 0)
        return false;
    for (size_t c = 0; c < RF_CPU_CORES; c++)
        allowed[c] = CPU_ISSET(c, mine);
    return true;
}

/* The thread's allowed cores, `mine`, are the same afterwards. */
static void move_to(const cpu_set_t *cores, const cpu_set_t *mine)
{
    if (sched_setaffinity(0, sizeof(*cores), cores) == 0 &&
        sched_setaffinity(0, sizeof(*mine), mine) != 0)
        rf_log("transport", 1, "this thread's cores cannot be set back: %s", strerror(errno));
}

static void move_away(int core, const uint16_t *ranks)
{
    cpu_set_t mine, best;
    bool allowed[RF_CPU_CORES], emptier[RF_CPU_CORES];
    if (!find_allowed(&mine, allowed) || !rf_cpu_emptier(ranks, core, allowed, emptier))
        return;
    CPU_ZERO(&best);
    for (size_t c = 0; c < RF_CPU_CORES; c++)
        if (emptier[c])
            CPU_SET(c, &best);
    move_to(&best, &mine);
}

/* Moves to the assigned core if ranks outnumber the cores. */
static void go_to_assigned(struct rf_cpu_affinity *affinity, int core)
{
    cpu_set_t mine, best;
    bool allowed[RF_CPU_CORES];
    const uint64_t now = rf_now_ns();
    if (core + 1 == affinity->assigned || now < affinity->may_move_ns)
        return;
    affinity->may_move_ns = now + AGAIN_NS;
    if (!find_allowed(&mine, allowed))
        return;
    const int assigned = rf_cpu_assigned(allowed, affinity->index, affinity->count);
    affinity->assigned = assigned + 1;
    if (assigned < 0 || assigned == core)
        return;
    CPU_ZERO(&best);
    CPU_SET((size_t)assigned, &best);
    move_to(&best, &mine);
}

static void publish(const struct rf_cpu_affinity *affinity, struct rf_transport *t, int core)
{
    if (affinity->publish)
        affinity->publish(t, core);
}

bool rf_cpu_idle(struct rf_cpu_affinity *affinity, struct rf_transport *t)
{
    /* Limited by the clock: on a crowded core, milliseconds pass between two calls. */
    const uint64_t now = rf_now_ns();
    if (now < affinity->may_look_ns)
        return t->yield || affinity->crowded;
    affinity->may_look_ns = now + LOOK_NS;
    uint16_t ranks[RF_CPU_CORES];
    const int core = sched_getcpu();
    if (core < 0 || core >= RF_CPU_CORES)
        return true;
    publish(affinity, t, core);
    if (t->yield && affinity->count > 0) {
        go_to_assigned(affinity, core);
        publish(affinity, t, sched_getcpu()); /* a rank that may use more cores moves away */
        return true;
    }
    const bool is_highest = count_ranks(affinity, t, core, ranks);
    affinity->crowded = ranks[core] > 1;
    if (!affinity->crowded || !is_highest || now < affinity->may_move_ns)
        return t->yield || affinity->crowded;
    affinity->may_move_ns = now + AGAIN_NS;
    move_away(core, ranks);
    publish(affinity, t, sched_getcpu());
    return true;
}
