/* SPDX-License-Identifier: MIT
 *
 * Point to point (IN is sent, OUT is received; desc->root is the peer), and what a collective of
 * one rank is: a copy from IN to OUT. Called by table.c.
 */
#include "sched.h"

/* A broadcast is in OUT already. */
void rf_build_copy(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const struct rf_operation *row = rf_operation(desc->op);
    if (desc->count > 0 && row->in != RF_SHAPE_NONE && row->in_place != RF_IN_PLACE_ONE)
        rf_sched_copy(sched, rf_out(0), rf_in(0), desc->count * sched->element_bytes);
}

void rf_build_send(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    if (desc->root == desc->rank)
        rf_build_copy(sched, desc);
    else
        rf_sched_send(sched, desc->root, 0, rf_in(0), desc->count * sched->element_bytes);
}

void rf_build_recv(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    rf_sched_recv(sched, desc->root, 0, rf_out(0), desc->count * sched->element_bytes);
}
