/* SPDX-License-Identifier: MIT
 *
 * The work of a step of `ringforge train` on rank 0, the limits of its device, and the expected
 * time of the step from the measured rates of device and links.
 */
#include <string.h>

#include "train.h"

/* The given peak, otherwise the measured one; FLOP/s, 0: neither. */
static double peak_of(const struct train_options *o, const struct rf_device_rates *measured)
{
    return o->peak > 0 ? 1e12 * o->peak : rf_device_rates_of(measured, o->setup.type);
}

/* False if a rate that the prediction needs was not measured. */
static bool rates_of(const struct rf_device_rates *measured, double peak,
                     const struct rf_comm *comm, struct rf_sim_rates *out)
{
    struct rf_link_figures links = {false};
    const bool alone = rf_comm_size(comm) == 1;
    if (!(peak > 0) || !(measured->bytes_per_s > 0))
        return false;
    if (!alone && (rf_comm_links(comm, &links) < 0 || !links.measured))
        return false;
    *out = (struct rf_sim_rates){.block_flops_per_s = peak,
                                 .flops_per_s = peak,
                                 .bytes_per_s = measured->bytes_per_s,
                                 .host_bytes_per_s = measured->bytes_per_s,
                                 .launch_s = measured->launch_s,
                                 .link_bytes_per_s = alone ? 1 : links.bytes_per_s,
                                 .link_latency_s = alone ? 0 : links.message_s};
    return true;
}

static void predict(const struct rf_plan *plan, const struct rf_sim_opts *opts,
                    struct train_expected *out)
{
    struct rf_sim_result result;
    struct rf_sim *sim = NULL;
    if (rf_plan_simulate_job(plan, opts, &sim) < 0)
        return;
    rf_sim_get_result(sim, 0, &result);
    rf_sim_destroy(sim);
    out->step_s = result.step_s;
    out->bound = rf_bound_name(result.bound);
    memcpy(out->path_s, result.path_s, sizeof(out->path_s));
}

void train_expect(const struct train_options *options, const struct rf_device *device,
                  const struct rf_comm *comm, const struct rf_plan *plan, int block_count,
                  struct train_expected *out)
{
    struct rf_device_rates measured = {{0}};
    struct rf_block_cost *costs = calloc((size_t)block_count, sizeof(*costs));
    struct rf_sim_opts opts = {.costs = costs};
    struct rf_work work = {0};
    *out = (struct train_expected){0};
    rf_device_rates_load(device, &measured);
    out->peak = peak_of(options, &measured);
    if (costs && rf_block_costs(plan, costs) == 0) {
        rf_plan_work(plan, costs, &work);
        out->flops = (double)(work.flops - work.repeated); /* repeated work counts once */
        if (rates_of(&measured, out->peak, comm, &opts.rates))
            predict(plan, &opts, out);
    }
    free(costs);
}
