/* SPDX-License-Identifier: MIT
 *
 * What a call sends and needs, for those who describe one: checks the description, fills in its
 * defaults, and asks its algorithm. Needs no communicator.
 */
#include "../base/base.h"
#include "table.h"

/* As all transports have it. */
enum { SEGMENT_BYTES = 256 << 10 };

/* ---- the description ------------------------------------------------------------------------- */

static int check_counts(const struct rf_coll_desc *desc, struct rf_coll_desc *own)
{
    const char *op = rf_coll_op_name(desc->op);
    const bool pairs = desc->op == RF_COLL_ALL_TO_ALL;
    if (!desc->counts && !desc->recv_counts)
        return 0;
    if (!rf_coll_has_shares(desc->op) && desc->op != RF_COLL_FOREST_REDUCE_SCATTER &&
        desc->op != RF_COLL_PREFIX_REDUCE_SCATTER)
        return rf_fail(RF_EINVAL, "%s does not take one count for each rank", op);
    if (pairs != (desc->recv_counts != NULL) || !desc->counts)
        return rf_fail(RF_EINVAL,
                       pairs ? "%s takes both counts and recv_counts"
                             : "%s takes counts, and no recv_counts",
                       op);
    return rf_coll_sum_counts(desc->op, desc->counts, desc->ranks, &own->count);
}

static int check_hosts(const struct rf_coll_desc *desc)
{
    int known = 0;
    for (int r = 0; desc->hosts && r < desc->ranks; r++) {
        if (desc->hosts[r] < 0 || desc->hosts[r] > known)
            return rf_fail(RF_EINVAL,
                           "rank %d is on host %d, but hosts are numbered from 0 in the order of "
                           "their first ranks",
                           r, desc->hosts[r]);
        known += desc->hosts[r] == known;
    }
    return 0;
}

/* 0: the default; SIZE_MAX: one piece, which the builders call 0. */
static size_t length(size_t bytes, size_t by_default)
{
    return bytes == SIZE_MAX ? 0 : bytes ? bytes : by_default;
}

int rf_coll_resolve(const struct rf_coll_desc *desc, struct rf_coll_desc *out)
{
    if (!desc)
        return rf_fail(RF_EINVAL, "collective: the description is NULL");
    const char *op = rf_coll_op_name(desc->op);
    if (desc->op <= RF_COLL_NONE || desc->op >= RF_COLL_OP_COUNT)
        return rf_fail(RF_EINVAL, "collective: %d is no operation", (int)desc->op);
    if (desc->ranks < 1)
        return rf_fail(RF_EINVAL, "%s: there cannot be %d ranks", op, desc->ranks);
    *out = *desc;
    out->count = desc->op == RF_COLL_BARRIER ? 0 : desc->count;
    out->order = rf_coll_adds_leaves(desc->op) ? RF_ORDER_TREE : desc->order;
    out->segment_bytes = length(desc->segment_bytes, SEGMENT_BYTES);
    out->window_bytes = length(desc->window_bytes, RF_WINDOW_BYTES);
    out->model = NULL;
    out->most_parts = 0;
    out->is_window = false;
    out->staged = 0;
    RETURN_IF_ERROR(check_counts(desc, out));
    out->stride = desc->stride ? desc->stride : out->count;
    return check_hosts(desc);
}

static int temp_of(const struct rf_coll_desc *desc, const char *algorithm, uint64_t *out)
{
    struct rf_sched *sched;
    RETURN_IF_ERROR(rf_sched_build_as(desc, algorithm, &sched));
    *out = sched->temp_bytes;
    rf_sched_destroy(sched);
    return 0;
}

int rf_coll_usage(const struct rf_coll_desc *desc, const char *algorithm, unsigned what,
                  struct rf_coll_usage *out)
{
    const unsigned known = RF_USES_SENT | RF_USES_STAGING | RF_USES_TEMP | RF_USES_ROUNDS;
    struct rf_coll_desc own;
    struct rf_coll_usage usage = {0};
    if (!out || what == 0 || (what & ~known))
        return rf_fail(RF_EINVAL,
                       "rf_coll_usage: out is NULL, or %#x names no figures; use "
                       "RF_USES_SENT and its like",
                       what);
    RETURN_IF_ERROR(rf_coll_resolve(desc, &own));
    if (what & RF_USES_SENT)
        RETURN_IF_ERROR(rf_coll_count_sent(&own, algorithm, &usage.sent_bytes));
    if (what & RF_USES_ROUNDS)
        RETURN_IF_ERROR(rf_coll_count_rounds(&own, algorithm, &usage.rounds));
    if (what & RF_USES_TEMP)
        RETURN_IF_ERROR(temp_of(&own, algorithm, &usage.temp_bytes));
    own.staged = RF_STAGED_IN | RF_STAGED_OUT;
    if (what & RF_USES_STAGING)
        RETURN_IF_ERROR(rf_sched_staging_bytes(&own, algorithm, &usage.staging_bytes));
    *out = usage;
    return 0;
}

int rf_coll_algorithm(const struct rf_coll_desc *desc, const char **name)
{
    struct rf_coll_desc own;
    const struct rf_algorithm *algorithm;
    if (!name)
        return rf_fail(RF_EINVAL, "rf_coll_algorithm: name is NULL");
    RETURN_IF_ERROR(rf_coll_resolve(desc, &own));
    if (rf_coll_adds_leaves(own.op) || rf_coll_is_point(own.op))
        return rf_fail(RF_EINVAL, "rf_coll_algorithm: there is no choice in %s",
                       rf_coll_op_name(own.op));
    RETURN_IF_ERROR(rf_coll_find(&own, NULL, &algorithm));
    *name = algorithm->name;
    return 0;
}
