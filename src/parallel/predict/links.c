/* SPDX-License-Identifier: MIT
 *
 * The duration of a transfer on the links between its ranks; ranks of the same host have faster
 * links. Used by the simulator and by the search for a mesh.
 */
#include "../../base/base.h"
#include "simulate.h"

/* The number of ranks of the group on the host of its first rank. */
static int here(const struct rf_sim_rates *rates, const struct rf_plan_group *group)
{
    if (group->size <= 1)
        return group->size;
    const int left = rates->host_ranks - 1 - group->first % rates->host_ranks;
    const int count = 1 + left / group->stride;
    return count < group->size ? count : group->size;
}

bool rf_link_is_intra_host(const struct rf_sim_rates *rates, const struct rf_plan_group *group)
{
    return rates->host_ranks > 0 && here(rates, group) == group->size;
}

bool rf_link_cuts_tensor(const struct rf_sim_rates *rates, const struct rf_plan *plan)
{
    const int host = rates->host_ranks, tp = rf_plan_tensor_ranks(plan);
    return host > 0 && rf_plan_ranks(plan) > host && host % tp != 0 && tp % host != 0;
}

/* Hierarchical algorithms exist for these (coll/hierarchical.c): within hosts, between ranks with
 * the same index in their hosts, and within hosts again. */
static bool is_hierarchical(enum rf_coll_op op)
{
    return op == RF_COLL_ALL_REDUCE || op == RF_COLL_REDUCE_SCATTER || op == RF_COLL_ALL_GATHER;
}

double rf_link_s(const struct rf_sim_rates *rates, const struct rf_plan_group *group,
                 enum rf_coll_op op, uint64_t rounds, uint64_t bytes)
{
    const bool intra_host = rf_link_is_intra_host(rates, group);
    const double latency_s =
        (double)rounds * (intra_host ? rates->intra_host_latency_s : rates->link_latency_s);
    if (intra_host)
        return latency_s + (double)bytes / rates->intra_host_bytes_per_s;
    const double inter_host_s = (double)bytes / rates->link_bytes_per_s;
    if (rates->host_ranks == 0 || !is_hierarchical(op))
        return latency_s + inter_host_s;
    const double ranks = group->size, local = here(rates, group), hosts = ranks / local;
    const double intra_host_s = (double)bytes / rates->intra_host_bytes_per_s;
    const double by_hosts_s =
        (intra_host_s * (local - 1) / local * ranks + inter_host_s * (hosts - 1)) / (ranks - 1);
    return latency_s + (by_hosts_s < inter_host_s ? by_hosts_s : inter_host_s);
}
