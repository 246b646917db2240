/* SPDX-License-Identifier: MIT
 *
 * Selects the libfabric provider, and gives the reason in words. Called when a communicator opens
 * and by `ringforge info`. Opens nothing.
 */
#include <arpa/inet.h>

#include "base/base.h"
#include "fabric.h"
#include "signals.h"

/* libfabric before 1.18 returns tcp;ofi_rxm for reliable messages of "tcp". */
const char *rf_fabric_native_name(void)
{
    return rf_ofi_load() < 0 || rf_ofi()->version() < FI_VERSION(1, 18) ? "net" : "tcp";
}

enum { MESSAGES = FI_TAGGED | FI_DIRECTED_RECV };

/* caps: MESSAGES, or what a window needs. */
static struct fi_info *make_hints(const char *provider, uint64_t caps)
{
    struct fi_info *hints = rf_ofi()->dupinfo(NULL);
    if (!hints)
        return NULL;
    hints->caps = caps;
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
        hints->fabric_attr->prov_name = strdup(provider); /* fi_freeinfo calls free() on it */
    return hints;
}

/* All 64 bits of the tag are used. */
static bool fits(const struct fi_info *info, uint64_t caps)
{
    return caps != MESSAGES || ((info->ep_attr->mem_tag_format >> 62) != 0 &&
                                info->domain_attr->cq_data_size >= sizeof(uint32_t));
}

/* Keeps the matching entries of exactly this provider; frees the others. */
static struct fi_info *keep(struct fi_info *list, const char *name, uint64_t caps)
{
    struct fi_info *kept = NULL, **end = &kept, *next;
    for (struct fi_info *info = list; info; info = next) {
        next = info->next;
        info->next = NULL;
        if (fits(info, caps) && (!name || strcmp(info->fabric_attr->prov_name, name) == 0)) {
            *end = info;
            end = &info->next;
        } else {
            rf_ofi()->freeinfo(info);
        }
    }
    return kept;
}

/* The offers of one provider, or with NULL of all, on the interface of `address`, or with NULL on
 * all. */
static int get_offers(const char *provider, const char *address, uint64_t caps,
                      struct fi_info **out)
{
    struct rf_signals kept;
    RETURN_IF_ERROR(rf_ofi_load());
    struct fi_info *hints = make_hints(provider, caps), *found = NULL;
    if (!hints || rf_signals_keep(&kept) < 0) {
        rf_ofi()->freeinfo(hints);
        return rf_fail(RF_ENOMEM, "no memory to ask libfabric for its providers");
    }
    if (address)
        hints->addr_format = strchr(address, ':') ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    const uint64_t flags = address ? FI_SOURCE : 0;
    int rc = rf_ofi()->getinfo(RF_FABRIC_API, address, NULL, flags, hints, &found);
    rf_signals_put_back(&kept, rf_ofi_address());
    rf_ofi()->freeinfo(hints);
    if (rc && rc != -FI_ENODATA)
        return rf_fail(RF_ENET, "libfabric's fi_getinfo failed: %s", rf_ofi()->strerror(-rc));
    *out = rc ? NULL : keep(found, provider, caps);
    return 0;
}

bool rf_fabric_is_offered(const char *fabric)
{
    struct fi_info *offers = NULL;
    if (get_offers(fabric, NULL, MESSAGES, &offers) < 0 || !offers)
        return false;
    rf_ofi()->freeinfo(offers);
    return true;
}

static int find_offers(const struct rf_opening *opening, const char *address, uint64_t caps,
                       struct fi_info **out)
{
    const unsigned traits = opening->provider->traits;
    *out = NULL;
    if (!(traits & RF_PROVIDER_ONE_HOST))
        RETURN_IF_ERROR(get_offers(opening->fabric, address, caps, out));
    /* Providers that do not use IP addresses are queried again without one. */
    if (!*out && !(traits & RF_PROVIDER_NATIVE_TCP))
        RETURN_IF_ERROR(get_offers(opening->fabric, NULL, caps, out));
    return 0;
}

/* With atomic operations, if there are any. */
static int select_one_sided(const struct rf_opening *opening, const char *address,
                            struct fi_info **out)
{
    RETURN_IF_ERROR(find_offers(opening, address, FI_RMA | FI_ATOMIC, out));
    if (!*out)
        RETURN_IF_ERROR(find_offers(opening, address, FI_RMA, out));
    if (!*out)
        return rf_fail(RF_ENOTSUP, "provider %s of libfabric %u.%u has no one-sided operations",
                       opening->name, FI_MAJOR(rf_ofi()->version()), FI_MINOR(rf_ofi()->version()));
    rf_ofi()->freeinfo((*out)->next);
    (*out)->next = NULL;
    return 0;
}

int rf_fabric_select(const struct rf_opening *opening, const char *address, struct fi_info **out)
{
    const bool native = (opening->provider->traits & RF_PROVIDER_NATIVE_TCP) != 0;
    struct fi_info *offers = NULL;
    if (opening->one_sided)
        return select_one_sided(opening, address, out);
    RETURN_IF_ERROR(find_offers(opening, address, MESSAGES, &offers));
    if (!offers && native)
        return rf_fail(RF_EINVAL, "provider %s is not offered by libfabric %u.%u on address %s",
                       opening->name, FI_MAJOR(rf_ofi()->version()), FI_MINOR(rf_ofi()->version()),
                       address ? address : "(any)");
    if (!offers)
        return rf_provider_fail_unknown(opening->table, opening->name);
    if (native)
        snprintf(opening->why, opening->why_bytes,
                 "%s is %s, the native TCP of libfabric %u.%u, as asked for", opening->name,
                 opening->fabric, FI_MAJOR(rf_ofi()->version()), FI_MINOR(rf_ofi()->version()));
    else
        snprintf(opening->why, opening->why_bytes, "%s was asked for by name", opening->name);
    rf_ofi()->freeinfo(offers->next);
    offers->next = NULL;
    *out = offers;
    return 0;
}

/* ---- available providers, for people
 * ---------------------------------------------------------------
 */

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

static bool is_first_of_its_name(const struct fi_info *all, const struct fi_info *info)
{
    for (; all != info; all = all->next)
        if (strcmp(all->fabric_attr->prov_name, info->fabric_attr->prov_name) == 0)
            return false;
    return true;
}

int rf_fabric_probe(const struct rf_provider *self, struct rf_provider_lines *lines)
{
    struct fi_info *all = NULL;
    char address[160];
    if (rf_ofi_load() < 0) { /* then this machine has no provider */
        rf_log("transport", 1, "%s", rf_last_error()->message);
        return 0;
    }
    const bool native = (self->traits & RF_PROVIDER_NATIVE_TCP) != 0;
    const char *wanted = native ? rf_fabric_native_name() : self->fabric;
    RETURN_IF_ERROR(get_offers(wanted, NULL, MESSAGES, &all));
    for (struct fi_info *info = all; info; info = info->next) {
        const char *fabric = info->fabric_attr->prov_name;
        if (!is_first_of_its_name(all, info) ||
            (!self->name && (rf_provider_of_fabric(lines->table, fabric) ||
                             strcmp(fabric, rf_fabric_native_name()) == 0)))
            continue;
        address_text(info, address, sizeof(address));
        rf_provider_add(lines, self, self->name ? self->name : fabric, address);
    }
    rf_ofi()->freeinfo(all);
    return 0;
}
