/* SPDX-License-Identifier: MIT
 *
 * Whether the ranks that take part in a recovery may continue without the others. Used by
 * survivors.c and loopback_survivors.c.
 */
#ifndef RF_TRANSPORT_QUORUM_H
#define RF_TRANSPORT_QUORUM_H

#include <stdbool.h>

/* True for more than half of the ranks that may still run: all except `gone`, which are known to
 * have ended or left, and are not merely silent. Of two halves, the one with the lowest rank. So of
 * the parts that a broken network separates, at most one continues, even if the parts know of
 * different gone ranks. here, gone: [size]. Pure. */
bool rf_quorum_has(const bool *here, const bool *gone, int size);
/* RF_EPEER, naming the first missing rank. */
int rf_quorum_fail(const bool *here, const bool *gone, int size);

#endif
