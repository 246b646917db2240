/* SPDX-License-Identifier: MIT
 *
 * The rates with which `ringforge plan` predicts times: given by the user, or measured by
 * `ringforge tune` on a device of this machine.
 */
#include <string.h>

#include "plan.h"

void plan_rates_options(struct plan_rates *r, struct tool_option *rows)
{
    const struct tool_option all[] = {
        {"peak", TOOL_COUNT, &r->peak, "TFLOPS",
         "speed of a device's products in --dtype, for a prediction"},
        {"memory", TOOL_COUNT, &r->memory, "GB", "memory bandwidth of a device, GB/s"},
        {"launch", TOOL_REAL, &r->launch, "US", "launch overhead of a kernel, microseconds (0)",
         .given = &r->launch_given},
        {"host-memory", TOOL_COUNT, &r->host_memory, "GB",
         "bandwidth between host and device, GB/s (as --memory)"},
        {"disk-rate", TOOL_COUNT, &r->disk, "GB",
         "speed of the disk of --offload optimizer=disk, read and written, GB/s"},
        {"link-gbps", TOOL_COUNT, &r->link, "G",
         "bandwidth of a rank's link in each direction, Gbit/s"},
        {"latency", TOOL_REAL, &r->latency, "US", "time of a short message, microseconds (0)",
         .given = &r->latency_given},
        {"hosts", TOOL_TEXT, &r->hosts_text, "HxR",
         "number of hosts and of ranks on each, which follow each other"},
        {"links", TOOL_TEXT, &r->links_text, "W,B",
         "bandwidths of a rank within hosts and between, Gbit/s or G:US with latency; with "
         "--hosts, not --link-gbps",
         .needs = "hosts"},
        {"device", TOOL_TEXT, &r->device, "WHICH",
         "device of this machine whose figures by `ringforge tune` are used"},
    };
    _Static_assert(sizeof(all) == PLAN_RATES_ROWS * sizeof(all[0]), "a row each");
    memcpy(rows, all, sizeof(all));
}

/* Missing rates are taken from the device's file. */
static int load(const struct tool_command *command, const struct setup *setup, struct plan_rates *r)
{
    struct rf_device_rates measured = {{0}};
    struct rf_device *device = NULL;
    if (!r->device)
        return TOOL_OK;
    if (rf_device_open(r->device, NULL, &device) < 0)
        return tool_library_error(command, -1);
    const bool found = rf_device_rates_load(device, &measured);
    rf_device_close(device);
    if (!found)
        return tool_error(command,
                          "nothing was measured on device \"%s\"; run `ringforge tune --device %s`",
                          r->device, r->device);
    r->peak = r->peak > 0 ? r->peak : 1e-12 * rf_device_rates_of(&measured, setup->type);
    r->memory = r->memory > 0 ? r->memory : 1e-9 * measured.bytes_per_s;
    if (!r->launch_given)
        r->launch = 1e6 * measured.launch_s;
    return TOOL_OK;
}

static int missing(const struct tool_command *command, const char *needed, const char *option,
                   const char *what)
{
    return tool_usage_error(command, "%s needs --%s, which says %s", needed, option, what);
}

int plan_rates_check(const struct tool_command *command, const struct setup *setup,
                     const char *needed, struct plan_rates *r)
{
    int status = plan_hosts_check(command, r);
    if (status != TOOL_OK)
        return status;
    const bool asked = r->peak > 0 || r->memory > 0 || r->host_memory > 0 || r->disk > 0 ||
                       r->link > 0 || r->launch_given || r->latency_given || r->device;
    if (!asked && !needed)
        return TOOL_OK;
    needed = needed ? needed : "a prediction";
    status = load(command, setup, r);
    if (status != TOOL_OK)
        return status;
    if (!(r->peak > 0))
        return missing(command, needed, "peak", "how fast products are on the device");
    if (!(r->memory > 0))
        return missing(command, needed, "memory", "how fast the device's memory is");
    if (!(r->link > 0) && (setup_ranks(setup) > 1 || r->hosts * r->host_ranks > 1))
        return missing(command, needed, r->hosts_text ? "links" : "link-gbps",
                       "how fast ranks send");
    if (!(r->disk > 0) && setup->on_disk)
        return missing(command, needed, "disk-rate", "how fast the disk is");
    if (r->disk > 0 && !setup->on_disk)
        return tool_usage_error(command, "--disk-rate is for --offload optimizer=disk");
    r->rates = (struct rf_sim_rates){
        .block_flops_per_s = 1e12 * r->peak,
        .flops_per_s = 1e12 * r->peak,
        .bytes_per_s = 1e9 * r->memory,
        .host_bytes_per_s = 1e9 * (r->host_memory > 0 ? r->host_memory : r->memory),
        .disk_bytes_per_s = 1e9 * r->disk,
        .launch_s = 1e-6 * r->launch,
        .link_bytes_per_s = r->link > 0 ? 1e9 / 8 * r->link : 1,
        .link_latency_s = 1e-6 * r->latency,
        .host_ranks = r->intra_host > 0 ? r->host_ranks : 0,
        .intra_host_bytes_per_s = 1e9 / 8 * r->intra_host,
        .intra_host_latency_s = 1e-6 * r->intra_host_latency,
    };
    r->known = true;
    return TOOL_OK;
}
