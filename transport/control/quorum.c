/* SPDX-License-Identifier: MIT
 *
 * See quorum.h.
 */
#include "quorum.h"

#include "base/base.h"

struct count {
    int here, possible;
    int lowest; /* the lowest rank that may still run */
    int missed; /* the first of these that is not here */
};

static struct count count(const bool *here, const bool *gone, int size)
{
    struct count c = {.lowest = -1, .missed = -1};
    for (int r = 0; r < size; r++) {
        if (gone[r] && !here[r])
            continue;
        c.possible++;
        c.here += here[r];
        if (c.lowest < 0)
            c.lowest = r;
        if (c.missed < 0 && !here[r])
            c.missed = r;
    }
    return c;
}

bool rf_quorum_has(const bool *here, const bool *gone, int size)
{
    struct count c = count(here, gone, size);
    return 2 * c.here > c.possible ||
           (2 * c.here == c.possible && c.possible > 0 && here[c.lowest]);
}

int rf_quorum_fail(const bool *here, const bool *gone, int size)
{
    struct count c = count(here, gone, size);
    return rf_fail_rank(RF_EPEER, c.missed,
                        "shrink: only %d of %d ranks that may still run are here, without rank %d; "
                        "the others might go on by themselves, so these may not; try again when "
                        "they can be reached",
                        c.here, c.possible, c.missed);
}
