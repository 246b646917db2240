/* SPDX-License-Identifier: MIT
 *
 * The table of providers, and the meaning of names. choose.c selects one for a job.
 */
#include "providers.h"
#include "base/base.h"

/* Available if the default network is; another network can be named instead. */
static int probe_hybrid(const struct rf_provider *self, struct rf_provider_lines *lines)
{
    rf_provider_add(lines, self, self->name, "this host and others");
    return 0;
}

static int probe_threads(const struct rf_provider *self, struct rf_provider_lines *lines)
{
    rf_provider_add(lines, self, self->name, "this process");
    return 0;
}

/* Best first. */
static const struct rf_provider rows[] = {
    {.name = "shm",
     .reach = RF_REACH_HOST,
     .note = "memory that the ranks share: the default if all are on one host",
     .probe = rf_shm_probe,
     .open = rf_shm_create},
    {.name = "shm+tcp",
     .reach = RF_REACH_HYBRID,
     .note = "that within each host, TCP between: the default if hosts have several ranks",
     .probe = probe_hybrid},
    {.name = "tcp",
     .reach = RF_REACH_NETWORK,
     .note = "TCP by the library's own sockets: every host, the default across hosts",
     .probe = rf_tcp_probe,
     .open = rf_tcp_create},
    {.name = "ofi-tcp",
     .other_name = "net",
     .reach = RF_REACH_NETWORK,
     .traits = RF_PROVIDER_NATIVE_TCP | RF_PROVIDER_STALLS | RF_PROVIDER_ONE_SIDED |
               RF_PROVIDER_OWNER_WORKS,
     .note = "libfabric's native TCP; name it to use it",
     .probe = rf_fabric_probe,
     .open = rf_fabric_create},
    /* Without windows: it reads and writes without a look at key and bounds, and ranks crash if one
     * of them dies in an atomic operation (1.17). */
    {.name = "ofi-shm",
     .fabric = "shm",
     .reach = RF_REACH_NETWORK,
     .traits = RF_PROVIDER_ONE_HOST | RF_PROVIDER_LOCKS_PEERS | RF_PROVIDER_LEAVES_FILES,
     .note = "libfabric's shared memory, within one host; name it to use it",
     .probe = rf_fabric_probe,
     .open = rf_fabric_create},
    {.name = "tcp;ofi_rxm",
     .fabric = "tcp;ofi_rxm",
     .reach = RF_REACH_NETWORK,
     .traits = RF_PROVIDER_ONE_SIDED | RF_PROVIDER_OWNER_WORKS,
     .note = "TCP through a layer that copies more; for peers without native TCP",
     .probe = rf_fabric_probe,
     .open = rf_fabric_create},
    {.name = "verbs;ofi_rxm",
     .fabric = "verbs;ofi_rxm",
     .reach = RF_REACH_NETWORK,
     .traits = RF_PROVIDER_ONE_SIDED,
     .note = "InfiniBand and RoCE; name it to use it",
     .probe = rf_fabric_probe,
     .open = rf_fabric_create},
    {.name = "efa",
     .fabric = "efa",
     .reach = RF_REACH_NETWORK,
     .traits = RF_PROVIDER_ONE_SIDED,
     .note = "AWS Elastic Fabric Adapter; name it to use it",
     .probe = rf_fabric_probe,
     .open = rf_fabric_create},
    /* Its atomic operations fail with a segmentation fault (1.17), so it has no windows. */
    {.name = "udp;ofi_rxd",
     .fabric = "udp;ofi_rxd",
     .reach = RF_REACH_NETWORK,
     .note = "datagrams made reliable; slow",
     .probe = rf_fabric_probe,
     .open = rf_fabric_create},
    {.name = "sockets",
     .fabric = "sockets",
     .reach = RF_REACH_NETWORK,
     .traits = RF_PROVIDER_ONE_SIDED,
     .note = "superseded by tcp; slow",
     .probe = rf_fabric_probe,
     .open = rf_fabric_create},
    {.name = "loopback",
     .reach = RF_REACH_THREADS,
     .note = "ranks as threads of one process, for tests and trials",
     .probe = probe_threads},
    /* All other providers of libfabric, by their own names. */
    {.reach = RF_REACH_NETWORK,
     .traits = RF_PROVIDER_ONE_SIDED,
     .note = "not known here; name it to use it",
     .probe = rf_fabric_probe,
     .open = rf_fabric_create},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]), OTHERS = ROWS - 1 };
const struct rf_provider_table rf_provider_table = {.rows = rows, .count = ROWS};

static const struct rf_provider *first_of(enum rf_reach reach)
{
    int row = 0;
    while (rows[row].reach != reach)
        row++;
    return &rows[row];
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_name(const char *name, const char *text, size_t bytes)
{
    return name && strlen(name) == bytes && memcmp(name, text, bytes) == 0;
}

static const struct rf_provider *row_of(const char *name, size_t bytes)
{
    int row = 0;
    while (row < OTHERS && !is_name(rows[row].name, name, bytes) &&
           !is_name(rows[row].other_name, name, bytes))
        row++;
    return &rows[row];
}

const struct rf_provider *rf_provider_row(const char *name)
{
    return row_of(name, strlen(name));
}

/* libfabric has used two names for its native TCP. */
static void take_network(struct rf_choice *choice, const struct rf_provider *row, const char *name)
{
    choice->network = row;
    if (row->traits & RF_PROVIDER_NATIVE_TCP)
        name = rf_fabric_native_name();
    else if (row->fabric || row->name)
        name = row->fabric ? row->fabric : "";
    snprintf(choice->fabric, sizeof(choice->fabric), "%s", name);
}

void rf_provider_need_network(struct rf_choice *choice)
{
    if (!choice->network)
        take_network(choice, first_of(RF_REACH_NETWORK), "");
}

/* "MEMORY+NETWORK", a valid pair. */
static bool is_hybrid(const char *wanted, struct rf_choice *out)
{
    const char *plus = strchr(wanted, '+');
    const struct rf_provider *memory = plus ? row_of(wanted, (size_t)(plus - wanted)) : NULL;
    const struct rf_provider *network = plus ? rf_provider_row(plus + 1) : NULL;
    if (!plus || memory->reach != RF_REACH_HOST || network->reach != RF_REACH_NETWORK ||
        (network->traits & RF_PROVIDER_ONE_HOST))
        return false;
    out->reach = RF_REACH_HYBRID;
    out->memory = memory;
    take_network(out, network, plus + 1);
    return true;
}

void rf_provider_resolve(const char *wanted, struct rf_choice *out)
{
    if (!wanted || !*wanted)
        wanted = rf_env("RF_PROVIDER");
    if (!wanted || !*wanted)
        wanted = "auto";
    *out = (struct rf_choice){.reach = RF_REACH_ANY, .memory = first_of(RF_REACH_HOST)};
    snprintf(out->asked, sizeof(out->asked), "%s", wanted);
    if (strcmp(wanted, "auto") == 0) {
        snprintf(out->name, sizeof(out->name), "auto");
    } else if (is_hybrid(wanted, out)) {
        snprintf(out->name, sizeof(out->name), "%s+%s", out->memory->name,
                 out->network->name ? out->network->name : out->fabric);
    } else {
        const struct rf_provider *row = rf_provider_row(wanted);
        out->reach = row->reach;
        if (row->reach == RF_REACH_HOST)
            out->memory = row;
        if (row->reach == RF_REACH_NETWORK) {
            take_network(out, row, wanted);
            row = out->network;
        }
        snprintf(out->name, sizeof(out->name), "%s", row->name ? row->name : wanted);
    }
}

/* ---- available providers
 * ---------------------------------------------------------------------------
 */

/* Whether the choice can be available: probed only if no row implies it. */
static int check(const struct rf_choice *choice)
{
    const bool network = choice->reach == RF_REACH_NETWORK || choice->reach == RF_REACH_HYBRID;
    if (network && !choice->network->name && !rf_fabric_is_offered(choice->fabric))
        return rf_provider_fail_unknown(&rf_provider_table, choice->asked);
    return 0;
}

int rf_provider_find(const char *wanted, struct rf_provider_info *out)
{
    struct rf_choice choice;
    rf_provider_resolve(wanted, &choice);
    RETURN_IF_ERROR(check(&choice));
    if (!out)
        return 0;
    const struct rf_provider *row = choice.memory;
    if (choice.reach == RF_REACH_NETWORK)
        row = choice.network;
    else if (choice.reach != RF_REACH_ANY)
        row = first_of(choice.reach);
    rf_provider_describe(row, choice.name, "", out);
    out->chosen = true;
    if (choice.reach == RF_REACH_ANY)
        out->shares_memory = false; /* depends on the hosts of the ranks */
    return 0;
}

int rf_provider_list(const char *wanted, struct rf_provider_info *infos, uint32_t capacity,
                     uint32_t *count)
{
    struct rf_choice choice;
    if (!count || (capacity > 0 && !infos))
        return rf_fail(RF_EINVAL, "rf_provider_list: infos and count must be given");
    rf_provider_resolve(wanted, &choice);
    struct rf_provider_lines lines = {.table = &rf_provider_table,
                                      .infos = infos,
                                      .capacity = capacity,
                                      .chosen = choice.reach == RF_REACH_ANY ? choice.memory->name
                                                                             : choice.name};
    RETURN_IF_ERROR(rf_provider_probe_all(&lines));
    /* A hybrid is listed with the default network only. */
    if (!lines.found && choice.reach == RF_REACH_HYBRID && *choice.fabric &&
        rf_fabric_is_offered(choice.fabric))
        rf_provider_add(&lines, first_of(RF_REACH_HYBRID), choice.name, "this host and others");
    if (!lines.found)
        return rf_provider_fail_unknown(&rf_provider_table, choice.asked);
    *count = lines.count < capacity || !infos ? lines.count : capacity;
    return 0;
}
