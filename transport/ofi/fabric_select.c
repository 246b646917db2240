/* SPDX-License-Identifier: MIT
 *
 * Which libfabric provider to use, and why, in words. Called when a communicator opens and by
 * `ringforge info`. Opens nothing.
 */
#include <arpa/inet.h>

#include "base/base.h"
#include "fabric.h"

/* What is known of providers, best first. `native` is reliable TCP without a layer in between: it
 * is called net before libfabric 1.18, and tcp from then on. */
static const struct provider_row {
    const char *name, *note;
    bool native;
} rows[] = {
    {"tcp", "native TCP: every host, the default across hosts", true},
    {"net", "native TCP: every host, the default across hosts", true},
    {"shm", "libfabric's shared memory, within one host; name it to use it", false},
    {"tcp;ofi_rxm", "TCP through a layer that copies more; for peers without native TCP", false},
    {"verbs;ofi_rxm", "InfiniBand and RoCE; name it to use it", false},
    {"efa", "AWS Elastic Fabric Adapter; name it to use it", false},
    {"udp;ofi_rxd", "datagrams made reliable; slow", false},
    {"sockets", "superseded by tcp; slow", false},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* libfabric before 1.18 gives tcp;ofi_rxm when asked for reliable messages of "tcp". */
static const char *native_name(void)
{
    return fi_version() < FI_VERSION(1, 18) ? "net" : "tcp";
}

static bool means_native(const char *wanted)
{
    return !wanted || !*wanted || strcmp(wanted, "auto") == 0 || strcmp(wanted, "tcp") == 0 ||
           strcmp(wanted, "net") == 0;
}

static struct fi_info *make_hints(const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        return NULL;
    hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->cq_data_size = sizeof(uint32_t);
    if (provider)
        hints->fabric_attr->prov_name = strdup(provider); /* fi_freeinfo frees it by free() */
    return hints;
}

/* All 64 bits of the tag are spoken for. */
static bool fits(const struct fi_info *info)
{
    return (info->ep_attr->mem_tag_format >> 62) != 0 &&
           info->domain_attr->cq_data_size >= sizeof(uint32_t);
}

/* Keeps the entries of exactly this provider that fit; frees the others. */
static struct fi_info *keep(struct fi_info *list, const char *name)
{
    struct fi_info *kept = NULL, **end = &kept, *next;
    for (struct fi_info *info = list; info; info = next) {
        next = info->next;
        info->next = NULL;
        if (fits(info) && (!name || strcmp(info->fabric_attr->prov_name, name) == 0)) {
            *end = info;
            end = &info->next;
        } else {
            fi_freeinfo(info);
        }
    }
    return kept;
}

/* Offers of one provider, or of all with NULL, on the interface of `address`, or on all with NULL.
 */
static int get_offers(const char *provider, const char *address, struct fi_info **out)
{
    struct fi_info *hints = make_hints(provider), *found = NULL;
    if (!hints)
        return rf_fail(RF_ENOMEM, "no memory to ask libfabric for its providers");
    if (address)
        hints->addr_format = strchr(address, ':') ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    int rc = fi_getinfo(RF_FABRIC_API, address, NULL, address ? FI_SOURCE : 0, hints, &found);
    fi_freeinfo(hints);
    if (rc && rc != -FI_ENODATA)
        return rf_fail(RF_ENET, "libfabric's fi_getinfo failed: %s", fi_strerror(-rc));
    *out = rc ? NULL : keep(found, provider);
    return 0;
}

static int fail_unknown(const char *wanted, const char *address)
{
    char names[400] = "";
    struct fi_info *all = NULL;
    RETURN_IF_ERROR(get_offers(NULL, NULL, &all));
    for (struct fi_info *info = all; info; info = info->next) {
        const char *name = info->fabric_attr->prov_name;
        size_t used = strlen(names);
        if (!strstr(names, name) && used + strlen(name) + 3 < sizeof(names))
            snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", name);
    }
    fi_freeinfo(all);
    return rf_fail(RF_EINVAL,
                   "provider %s is not offered by libfabric %u.%u on address %s; offered: %s",
                   wanted, FI_MAJOR(fi_version()), FI_MINOR(fi_version()),
                   address ? address : "(any)", names[0] ? names : "none");
}

int rf_fabric_select(const char *wanted, const char *address, struct fi_info **out, char *why,
                     size_t why_bytes)
{
    bool native = means_native(wanted);
    const char *name = native ? native_name() : wanted;
    bool named = native && wanted && *wanted && strcmp(wanted, "auto") != 0;
    struct fi_info *offers = NULL;
    if (strcmp(name, "shm") != 0)
        RETURN_IF_ERROR(get_offers(name, address, &offers));
    /* Providers that are not addressed by IP are asked again without. */
    if (!offers && !native)
        RETURN_IF_ERROR(get_offers(name, NULL, &offers));
    if (!offers)
        return fail_unknown(name, address);
    if (native)
        snprintf(why, why_bytes, "%s is the native TCP provider of libfabric %u.%u, %s", name,
                 FI_MAJOR(fi_version()), FI_MINOR(fi_version()),
                 named ? "as asked for" : "which every host has and which is the default");
    else
        snprintf(why, why_bytes, "%s was asked for by name", name);
    fi_freeinfo(offers->next);
    offers->next = NULL;
    *out = offers;
    return 0;
}

/* ---- what there is, for people --------------------------------------------------------------- */

static void address_text(const struct fi_info *info, char *out, size_t bytes)
{
    char ip[INET6_ADDRSTRLEN] = "";
    const void *address = info->src_addr;
    if (address && info->addr_format == FI_SOCKADDR_IN)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, ip, sizeof(ip));
    else if (address && info->addr_format == FI_SOCKADDR_IN6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, ip, sizeof(ip));
    if (ip[0])
        snprintf(out, bytes, "%s on %s", ip, info->domain_attr->name);
    else
        snprintf(out, bytes, "%s", info->domain_attr->name);
}

static int row_of(const char *name)
{
    int row = 0;
    while (row < ROWS && strcmp(rows[row].name, name) != 0)
        row++;
    return row;
}

static void add_provider(const struct fi_info *info, const char *chosen,
                         struct rf_provider_info *out)
{
    const char *name = info->fabric_attr->prov_name;
    int row = row_of(name);
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "%s", name);
    address_text(info, out->address, sizeof(out->address));
    snprintf(out->note, sizeof(out->note), "%s",
             row < ROWS ? rows[row].note : "not known here; name it to use it");
    out->chosen = strcmp(name, chosen) == 0;
}

/* Those that are not libfabric's. */
static void add_own(const char *name, const char *reach, const char *note, const char *chosen,
                    struct rf_provider_info *out)
{
    *out = (struct rf_provider_info){.chosen = strcmp(name, chosen) == 0};
    snprintf(out->name, sizeof(out->name), "%s", name);
    snprintf(out->address, sizeof(out->address), "%s", reach);
    snprintf(out->note, sizeof(out->note), "%s", note);
}

static bool is_first_of_its_name(const struct fi_info *all, const struct fi_info *info)
{
    for (; all != info; all = all->next)
        if (strcmp(all->fabric_attr->prov_name, info->fabric_attr->prov_name) == 0)
            return false;
    return true;
}

int rf_provider_list(const char *wanted, struct rf_provider_info *infos, uint32_t capacity,
                     uint32_t *count)
{
    if (!count || (capacity > 0 && !infos))
        return rf_fail(RF_EINVAL, "rf_provider_list: infos and count must be given");
    struct fi_info *all = NULL;
    RETURN_IF_ERROR(get_offers(NULL, NULL, &all));
    if (!wanted)
        wanted = rf_env("RF_PROVIDER");
    char both[32];
    snprintf(both, sizeof(both), "host+%s", native_name());
    const char *chosen = wanted;
    if (!wanted || !*wanted || strcmp(wanted, "auto") == 0)
        chosen = "host";
    else if (means_native(wanted))
        chosen = native_name();
    else if (strncmp(wanted, "host+", 5) == 0 && means_native(wanted + 5))
        chosen = both;
    uint32_t found = 2;
    if (capacity > 0)
        add_own("host", "this host",
                "memory that the ranks share: the default where all are on one host", chosen,
                &infos[0]);
    if (capacity > 1)
        add_own(both, "this host and others",
                "that within each host, native TCP between: the default where hosts have several",
                chosen, &infos[1]);
    /* In the order of the table, the unknown ones last. */
    for (int row = 0; row <= ROWS; row++)
        for (struct fi_info *info = all; info; info = info->next)
            if (row_of(info->fabric_attr->prov_name) == row && is_first_of_its_name(all, info)) {
                if (found < capacity)
                    add_provider(info, chosen, &infos[found]);
                found++;
            }
    fi_freeinfo(all);
    *count = found < capacity || !infos ? found : capacity;
    return 0;
}
