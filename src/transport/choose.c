/* SPDX-License-Identifier: MIT
 *
 * Which transport the ranks of a job get: shared memory where all are on one host, else libfabric;
 * or what was asked for by name. Called by comm, for a job and for its groups.
 */
#include "../base/base.h"
#include "transport.h"

static const double EXCHANGE_TIMEOUT_S = 60;

enum wish { WISH_ANY, WISH_HOST, WISH_FABRIC };

struct wishes {
    int32_t wish;
    char provider[28];
};

static enum wish wish_of(const char *provider)
{
    if (!provider || !*provider || strcmp(provider, "auto") == 0)
        return WISH_ANY;
    return strcmp(provider, "host") == 0 ? WISH_HOST : WISH_FABRIC;
}

/* The first rank that has this wish, -1 = none. */
static int first_with(const struct wishes *all, int size, enum wish wish)
{
    for (int r = 0; r < size; r++)
        if (all[r].wish == (int32_t)wish)
            return r;
    return -1;
}

/* The same on all ranks: 1 = host is asked for, 0 = it would be taken, RF_ENOTSUP = it is not
 * wanted. */
static int agree(struct rf_control *control, const char *provider, struct wishes *all)
{
    struct wishes mine = {.wish = (int32_t)wish_of(provider)};
    snprintf(mine.provider, sizeof(mine.provider), "%s", provider ? provider : "auto");
    RETURN_IF_ERROR(
        control->ops->all_gather(control, &mine, sizeof(mine), all, EXCHANGE_TIMEOUT_S));
    int host = first_with(all, control->size, WISH_HOST);
    int fabric = first_with(all, control->size, WISH_FABRIC);
    if (host >= 0 && fabric >= 0)
        return rf_fail_rank(RF_EINVAL, control->rank == host ? fabric : host,
                            "rank %d asks for provider host, rank %d for %.27s; give every rank "
                            "the same RF_PROVIDER",
                            host, fabric, all[fabric].provider);
    if (fabric >= 0)
        return RF_ENOTSUP;
    return host >= 0;
}

static int use_host(struct rf_control *control, bool asked, struct rf_transport **out, char *why,
                    size_t why_bytes)
{
    int rc = rf_host_create(control, out);
    if (rc == 0)
        snprintf(why, why_bytes, "host is memory that the ranks share, %s",
                 asked ? "as asked for" : "as all of them are on one host");
    else if (rc == RF_ENOTSUP && asked)
        return rf_fail_rank(RF_EINVAL, rf_last_error()->rank,
                            "provider host works within one host: %.200s",
                            rf_last_error()->message);
    return rc;
}

static int use_fabric(struct rf_control *control, const char *provider, const char *not_host,
                      struct rf_transport **out, char *why, size_t why_bytes)
{
    RETURN_IF_ERROR(
        rf_fabric_create(control, provider, control->rank, control->size, out, why, why_bytes));
    size_t used = strlen(why);
    if (*not_host && used + 32 < why_bytes)
        snprintf(why + used, why_bytes - used, "; not host: %s", not_host);
    return 0;
}

int rf_transport_create(struct rf_control *control, const char *provider, struct rf_transport **out,
                        char *why, size_t why_bytes)
{
    char not_host[160] = "";
    if (control->size == 1)
        return rf_fabric_create(control, provider, 0, 1, out, why, why_bytes);
    if (!provider)
        provider = rf_env("RF_PROVIDER");
    struct wishes *all = rf_alloc((size_t)control->size * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory for the wishes of %d ranks", control->size);
    int rc = agree(control, provider, all);
    rf_free(all);
    if (rc < 0 && rc != RF_ENOTSUP)
        return rc;
    if (rc >= 0) {
        rc = use_host(control, rc == 1, out, why, why_bytes);
        if (rc != RF_ENOTSUP) {
            if (rc == 0)
                rf_log("transport", 2, "%s%s", why, (*out)->yield ? "; more ranks than cores" : "");
            return rc;
        }
        snprintf(not_host, sizeof(not_host), "%.159s", rf_last_error()->message);
    }
    return use_fabric(control, provider, not_host, out, why, why_bytes);
}
