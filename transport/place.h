/* SPDX-License-Identifier: MIT
 *
 * Where the ranks of a job are on a network, for the transports that open ports: which address a
 * rank listens on, and what all ranks return if one of them cannot open anything.
 */
#ifndef RF_TRANSPORT_PLACE_H
#define RF_TRANSPORT_PLACE_H

#include "base/base.h"
#include "transport.h"

struct rf_place {
    char address[64]; /* numeric IP to listen on */
    int here;         /* ranks on this host, this one included */
    int index;        /* how many of them have a lower number than this one */
};

/* Collective over `control`. */
RF_MUST_CHECK int rf_place_find(struct rf_control *control, struct rf_place *out);

/* Collective, if a rank has opened nothing: all return the reason of rank `first`, whose status is
 * given. mine: why this rank has opened nothing, or "". */
RF_MUST_CHECK int rf_place_fail(struct rf_control *control, int first, int status,
                                const char *mine);

#endif
