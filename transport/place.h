/* SPDX-License-Identifier: MIT
 *
 * The ranks of a job on a network, for transports that open ports: the address on which a rank
 * listens, and the error that all ranks return if one of them cannot open anything.
 */
#ifndef RF_TRANSPORT_PLACE_H
#define RF_TRANSPORT_PLACE_H

#include "base/base.h"
#include "transport.h"

struct rf_place {
    char address[64]; /* numeric IP to listen on */
    int here;         /* number of ranks on this host, including this one */
    int index;        /* number of these that are lower than this one */
};

/* Collective over `control`. */
RF_MUST_CHECK int rf_place_find(struct rf_control *control, struct rf_place *out);

/* Collective, if a rank has opened nothing: all return the reason of rank `first`, with the given
 * status. mine: this rank's own reason, or "". */
RF_MUST_CHECK int rf_place_fail(struct rf_control *control, int first, int status,
                                const char *mine);

#endif
