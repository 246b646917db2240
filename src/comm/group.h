/* SPDX-License-Identifier: MIT
 *
 * The calls that a group has stored (group.c), for the file that runs them (group_run.c).
 */
#ifndef RF_COMM_GROUP_H
#define RF_COMM_GROUP_H

#include "p2p.h"

struct rf_group {
    int depth;
    double timeout_s; /* the longest timeout of its sends and receives */
    struct rf_p2p_op *p2p_ops;
    size_t p2p_op_count, p2p_op_capacity;
    struct rf_task *first,
        **end; /* collectives, and calls with a request, in the order of the calls */
};

#endif
