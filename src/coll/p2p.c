/* SPDX-License-Identifier: MIT
 *
 * Point to point (IN is sent, OUT is received; desc->root is the peer), and what a collective of
 * one rank is: a copy from IN to OUT.
 */
#include "algorithm.h"

/* A broadcast's data are already in OUT. */
static void build_copy(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const struct rf_operation *row = rf_operation(desc->op);
    if (desc->count > 0 && row->in != RF_SHAPE_NONE && row->in_place != RF_IN_PLACE_ONE)
        rf_sched_copy(sched, rf_out(0), rf_in(0), desc->count * sched->element_bytes);
}

static void build_send(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    if (desc->root == desc->rank)
        build_copy(sched, desc);
    else
        rf_sched_send(sched, desc->root, 0, rf_in(0), desc->count * sched->element_bytes);
}

static void build_recv(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    rf_sched_recv(sched, desc->root, 0, rf_out(0), desc->count * sched->element_bytes);
}

/* ---- the records ----------------------------------------------------------------------------- */

static const char *is_alone(const struct rf_coll_desc *desc)
{
    bool alone = desc->ranks == 1 && !rf_coll_adds_leaves(desc->op) && desc->op != RF_COLL_RECV;
    return alone ? NULL : "it is for one rank";
}

const struct rf_algorithm rf_local = {
    .op = RF_COLL_NONE,
    .name = "local",
    .note = "one rank",
    .bytes = "0",
    .why_not = is_alone,
    .build = build_copy,
    .sent = rf_sent_nothing,
};

const struct rf_algorithm rf_message_send = {
    .op = RF_COLL_SEND,
    .name = "message",
    .note = "every size",
    .bytes = "K",
    .why_not = rf_why_no_peers,
    .build = build_send,
    .sent = rf_sent_to_root,
    .rounds = {.fixed = 1},
    .whole = true,
};

const struct rf_algorithm rf_message_recv = {
    .op = RF_COLL_RECV,
    .name = "message",
    .note = "every size",
    .bytes = "0",
    .why_not = rf_why_no_peers,
    .build = build_recv,
    .sent = rf_sent_nothing,
    .rounds = {.fixed = 1},
    .whole = true,
};
