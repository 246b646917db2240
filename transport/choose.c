/* SPDX-License-Identifier: MIT
 *
 * Which transport the ranks of a job get: shared memory where all are on one host, both where some
 * hosts have several ranks, else libfabric; or what was asked for by name. Called by comm, for a
 * job and for its groups.
 */
#include "base/base.h"
#include "transport.h"

static const double EXCHANGE_TIMEOUT_S = 60;
static const char BOTH[] = "host+"; /* and a provider of libfabric's */

enum wish { WISH_ANY, WISH_HOST, WISH_BOTH, WISH_FABRIC };

struct wishes {
    int32_t wish;
    char provider[28];
    uint64_t host;
};

struct choice {
    struct rf_control *control;
    enum wish wish;      /* what somebody has asked for */
    const char *network; /* a provider of libfabric's, as this rank has asked for it */
    uint64_t *hosts;     /* [size] */
    int host_count;
    char not_shared[160]; /* why memory is not shared, though it would be good */
    char *why;
    size_t why_bytes;
};

static enum wish wish_of(const char *provider)
{
    if (!provider || !*provider || strcmp(provider, "auto") == 0)
        return WISH_ANY;
    if (strncmp(provider, BOTH, sizeof(BOTH) - 1) == 0)
        return WISH_BOTH;
    return strcmp(provider, "host") == 0 ? WISH_HOST : WISH_FABRIC;
}

/* Who has a wish has the same as all others who have one. */
static int find_wish(const struct rf_control *control, const struct wishes *all, enum wish *out)
{
    int first = -1;
    for (int r = 0; r < control->size; r++) {
        if (all[r].wish == WISH_ANY)
            continue;
        if (first < 0)
            first = r;
        if (all[r].wish == all[first].wish)
            continue;
        return rf_fail_rank(RF_EINVAL, control->rank == r ? first : r,
                            "rank %d asks for provider %.27s, rank %d for %.27s; give every rank "
                            "the same RF_PROVIDER",
                            r, all[r].provider, first, all[first].provider);
    }
    *out = first < 0 ? WISH_ANY : (enum wish)all[first].wish;
    return 0;
}

static int agree(struct choice *c, const char *provider)
{
    struct rf_control *control = c->control;
    struct wishes mine = {.wish = (int32_t)wish_of(provider), .host = control->host};
    snprintf(mine.provider, sizeof(mine.provider), "%s", provider ? provider : "auto");
    struct wishes *all = rf_alloc((size_t)control->size * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory for the wishes of %d ranks", control->size);
    int rc = control->ops->all_gather(control, &mine, sizeof(mine), all, EXCHANGE_TIMEOUT_S);
    if (rc == 0)
        rc = find_wish(control, all, &c->wish);
    for (int r = 0; r < control->size; r++) {
        int before = 0;
        c->hosts[r] = all[r].host;
        while (before < r && c->hosts[before] != c->hosts[r])
            before++;
        c->host_count += before == r;
    }
    rf_free(all);
    return rc;
}

static int use_fabric(struct choice *c, struct rf_transport **out)
{
    struct rf_control *control = c->control;
    RETURN_IF_ERROR(rf_fabric_create(control, c->network, control->rank, control->size, out, c->why,
                                     c->why_bytes));
    size_t used = strlen(c->why);
    bool could_share = c->wish == WISH_FABRIC && c->host_count == 1 && strcmp((*out)->name, "shm");
    if (used + 72 > c->why_bytes)
        return 0;
    if (could_share)
        strcat(c->why, "; all ranks are on one host, so --provider host would be faster");
    else if (*c->not_shared)
        snprintf(c->why + used, c->why_bytes - used, "; not host: %s", c->not_shared);
    return 0;
}

/* Shared memory to the ranks of this host, and the network to all others. Takes near. */
static int add_network(struct choice *c, struct rf_transport *near, struct rf_transport **out)
{
    struct rf_transport *far = NULL;
    char network[160] = "";
    int rc = rf_fabric_create(c->control, c->network, near->rank, near->size, &far, network,
                              sizeof(network));
    if (rc < 0) {
        near->ops->destroy(near);
        return rc;
    }
    snprintf(c->why, c->why_bytes,
             "memory that ranks share within each of %d hosts; between them %s", c->host_count,
             network);
    return rf_both_create(near, far, out);
}

/* Falls back on the network where memory cannot be shared, and nobody has asked for that. */
static int use_best(struct choice *c, struct rf_transport **out)
{
    bool one = c->wish == WISH_HOST || c->host_count == 1;
    struct rf_transport *near = NULL;
    if (c->wish == WISH_FABRIC || (!one && c->host_count == c->control->size))
        return use_fabric(c, out);
    int rc = rf_host_create(c->control, one ? NULL : c->hosts, &near);
    if (rc == RF_ENOTSUP && c->wish == WISH_ANY) {
        snprintf(c->not_shared, sizeof(c->not_shared), "%.159s", rf_last_error()->message);
        return use_fabric(c, out);
    }
    if (rc == RF_ENOTSUP)
        return rf_fail_rank(RF_EINVAL, rf_last_error()->rank,
                            "provider host works within one host: %.200s",
                            rf_last_error()->message);
    if (rc < 0)
        return rc;
    if (!one)
        return add_network(c, near, out);
    snprintf(c->why, c->why_bytes, "host is memory that the ranks share, %s",
             c->wish == WISH_HOST ? "as asked for" : "as all of them are on one host");
    *out = near;
    return 0;
}

int rf_transport_create(struct rf_control *control, const char *provider, struct rf_transport **out,
                        char *why, size_t why_bytes)
{
    struct choice c = {.control = control, .why = why, .why_bytes = why_bytes};
    if (control->size == 1)
        return rf_fabric_create(control, provider, 0, 1, out, why, why_bytes);
    if (!provider)
        provider = rf_env("RF_PROVIDER");
    enum wish wish = wish_of(provider);
    c.network = wish == WISH_FABRIC ? provider
                : wish == WISH_BOTH ? provider + sizeof(BOTH) - 1
                                    : "auto";
    c.hosts = rf_alloc((size_t)control->size * sizeof(*c.hosts));
    if (!c.hosts)
        return rf_fail(RF_ENOMEM, "no memory for the hosts of %d ranks", control->size);
    int rc = agree(&c, provider);
    if (rc == 0)
        rc = use_best(&c, out);
    rf_free(c.hosts);
    if (rc == 0 && wish != WISH_FABRIC)
        rf_log("transport", 2, "%s%s", why, (*out)->yield ? "; more ranks than cores" : "");
    return rc;
}
