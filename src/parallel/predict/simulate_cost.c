/* SPDX-License-Identifier: MIT
 *
 * The time of an instruction by rates: from its transfer, from the work of its launches (work.c),
 * or from its operands. It does not distinguish verbs, so a new one has a cost. Called by
 * simulate.c.
 */
#include <math.h>

#include "../../base/base.h"
#include "../plan/traffic.h"
#include "simulate.h"

static int check_rate(const char *name, double rate)
{
    if (rate > 0)
        return 0;
    return rf_fail(RF_EINVAL, "simulate: %s is %g; a rate must be more than 0, and may be infinite",
                   name, rate);
}

static int check_seconds(const char *name, double seconds)
{
    if (seconds >= 0 && isfinite(seconds))
        return 0;
    return rf_fail(RF_EINVAL, "simulate: %s is %g; seconds must be finite and not negative", name,
                   seconds);
}

int rf_sim_check_opts(const struct rf_sim_opts *opts)
{
    if (!opts)
        return rf_fail(RF_EINVAL, "simulate: options with rates are needed");
    const struct rf_sim_rates *r = &opts->rates;
    RETURN_IF_ERROR(check_rate("block_flops_per_s", r->block_flops_per_s));
    RETURN_IF_ERROR(check_rate("flops_per_s", r->flops_per_s));
    RETURN_IF_ERROR(check_rate("bytes_per_s", r->bytes_per_s));
    RETURN_IF_ERROR(check_rate("host_bytes_per_s", r->host_bytes_per_s));
    RETURN_IF_ERROR(check_rate("link_bytes_per_s", r->link_bytes_per_s));
    RETURN_IF_ERROR(check_seconds("launch_s", r->launch_s));
    RETURN_IF_ERROR(check_seconds("link_latency_s", r->link_latency_s));
    if (r->host_ranks < 0)
        return rf_fail(RF_EINVAL,
                       "simulate: host_ranks is %d; use the number of ranks of a host, or 0",
                       r->host_ranks);
    if (r->host_ranks > 0) {
        RETURN_IF_ERROR(check_rate("intra_host_bytes_per_s", r->intra_host_bytes_per_s));
        RETURN_IF_ERROR(check_seconds("intra_host_latency_s", r->intra_host_latency_s));
    }
    for (int verb = 0; opts->verb_s && verb < RF_VERB_COUNT; verb++)
        if (!isfinite(opts->verb_s[verb]))
            return rf_fail(RF_EINVAL,
                           "simulate: \"%s\" takes %g seconds; use a finite number, or a negative "
                           "one for the time by rates",
                           rf_verb_name((enum rf_verb)verb), opts->verb_s[verb]);
    return 0;
}

/* The two ranks of a message. */
static struct rf_plan_group ranks_of(const struct rf_plan *plan, const struct rf_transfer *t)
{
    const int rank = plan->rank, peer = t->peer;
    if (rf_lane_collects((int)t->group))
        return plan->groups[t->group];
    return (struct rf_plan_group){.first = rank < peer ? rank : peer,
                                  .stride = rank < peer ? peer - rank : rank - peer,
                                  .size = 2};
}

static int transfer_cost(const struct rf_plan *plan, const struct rf_transfer *t,
                         const struct rf_sim_rates *rates, struct rf_sim_cost *out)
{
    uint64_t rounds = 0, bytes = 0;
    RETURN_IF_ERROR(rf_transfer_rounds(plan, t, &rounds));
    RETURN_IF_ERROR(rf_transfer_carried(plan, t, &bytes));
    const struct rf_plan_group group = ranks_of(plan, t);
    double s = rf_link_s(rates, &group, t->op, rounds, bytes);
    if (t->group == RF_LANE_TENSOR && rf_link_cuts_tensor(rates, plan)) {
        /* Uses the links of the slowest pair of the job's tensor groups. */
        struct rf_sim_rates between = *rates;
        between.host_ranks = 0;
        s = fmax(s, rf_link_s(&between, &group, t->op, rounds, bytes));
    }
    out->part_s[RF_BOUND_NETWORK] = s;
    return 0;
}

/* The larger of the bytes in device and in host memory, so that copied bytes count once. */
static uint64_t operand_bytes(const struct rf_plan *plan, const struct rf_instruction *i)
{
    const int *operands = rf_plan_operands(plan, i);
    uint64_t host = 0, device = 0;
    for (int k = 0; k < i->ins + i->outs; k++) {
        const struct rf_value *v = &plan->values[operands[k]];
        if (v->bytes > 0 && plan->regions[v->region].memory == RF_MEMORY_HOST)
            host += v->bytes;
        else
            device += v->bytes;
    }
    return host > device ? host : device;
}

void rf_sim_work_cost(const struct rf_work *work, double flops_per_s,
                      const struct rf_sim_rates *rates, struct rf_sim_cost *out)
{
    const double compute_s = (double)work->flops / flops_per_s;
    const double memory_s = ((double)work->read + (double)work->written) / rates->bytes_per_s;
    if (compute_s > memory_s)
        out->part_s[RF_BOUND_COMPUTE] = compute_s;
    else
        out->part_s[RF_BOUND_MEMORY] = memory_s;
    out->part_s[RF_BOUND_LAUNCH] = (double)work->launches * rates->launch_s;
}

static void device_cost(const struct rf_plan *plan, const struct rf_instruction *i,
                        const struct rf_sim_opts *opts, struct rf_sim_cost *out)
{
    const struct rf_sim_rates *rates = &opts->rates;
    struct rf_work work = {0};
    if (!rf_instruction_work(plan, opts->costs, i, &work))
        work = (struct rf_work){.launches = 1, .read = operand_bytes(plan, i)};
    rf_sim_work_cost(&work, i->block >= 0 ? rates->block_flops_per_s : rates->flops_per_s, rates,
                     out);
}

static int disk_cost(const struct rf_plan *plan, const struct rf_instruction *i,
                     const struct rf_sim_rates *rates, struct rf_sim_cost *out)
{
    RETURN_IF_ERROR(check_rate("disk_bytes_per_s", rates->disk_bytes_per_s));
    out->part_s[RF_BOUND_DISK] = (double)rf_plan_disk_bytes(plan, i) / rates->disk_bytes_per_s;
    return 0;
}

static enum rf_bound kind_of(const struct rf_instruction *i)
{
    if (i->transfer >= 0)
        return RF_BOUND_NETWORK;
    if (i->lane == RF_LANE_DISK)
        return RF_BOUND_DISK;
    return i->lane == RF_LANE_COMPUTE ? RF_BOUND_COMPUTE : RF_BOUND_HOST;
}

int rf_sim_count_cost(const struct rf_plan *plan, const struct rf_instruction *i,
                      const struct rf_sim_opts *opts, struct rf_sim_cost *out)
{
    const enum rf_bound kind = kind_of(i);
    *out = (struct rf_sim_cost){{0}};
    if (opts->verb_s && opts->verb_s[i->verb] >= 0)
        out->part_s[kind] = opts->verb_s[i->verb];
    else if (kind == RF_BOUND_NETWORK)
        return transfer_cost(plan, rf_plan_transfer(plan, i), &opts->rates, out);
    else if (kind == RF_BOUND_HOST)
        out->part_s[kind] = (double)operand_bytes(plan, i) / opts->rates.host_bytes_per_s;
    else if (kind == RF_BOUND_DISK)
        return disk_cost(plan, i, &opts->rates, out);
    else
        device_cost(plan, i, opts, out);
    return 0;
}
