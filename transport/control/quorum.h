/* SPDX-License-Identifier: MIT
 *
 * Whether the ranks that take part in a recovery may go on without the others. Used by survivors.c
 * and loopback_survivors.c.
 */
#ifndef RF_TRANSPORT_QUORUM_H
#define RF_TRANSPORT_QUORUM_H

#include <stdbool.h>

/* True for more than half of those who may still run: all but the `gone`, which are known to have
 * ended or left, and not only not to answer. Of two halves, for that with the lowest rank. So of
 * ranks that a broken network has parted at most one part goes on, even where the parts know of
 * different ranks that they are gone. here, gone: [size]. Pure. */
bool rf_quorum_has(const bool *here, const bool *gone, int size);
/* RF_EPEER, naming the first who is missed. */
int rf_quorum_fail(const bool *here, const bool *gone, int size);

#endif
