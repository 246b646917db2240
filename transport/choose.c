/* SPDX-License-Identifier: MIT
 *
 * Chooses the transport of a job: shared memory if all ranks are on one host, a hybrid of it and a
 * network if some hosts have several ranks, otherwise the network; or the transport that was named.
 * Called by comm, for a job and for its groups.
 */
#include "base/base.h"
#include "providers.h"

static const double EXCHANGE_TIMEOUT_S = 60;
enum { NAME_BYTES = 28 };

/* The record that each rank sends to all others. */
struct wish {
    int32_t reach;
    char provider[NAME_BYTES];
    uint64_t host;
};

struct chooser {
    struct rf_control *control;
    struct rf_choice mine;
    enum rf_reach reach; /* what a rank has named */
    uint64_t *hosts;     /* [size] */
    int host_count;
    char not_shared[160]; /* why memory is not shared although ranks share a host */
    char *why;
    size_t why_bytes;
};

/* All ranks that name a provider must name the same one. *out: one of them, or NULL. */
static int find_wish(const struct rf_control *control, const struct wish *all,
                     const struct wish **out)
{
    int first = -1;
    for (int r = 0; r < control->size; r++) {
        if (all[r].reach == RF_REACH_ANY)
            continue;
        if (first < 0)
            first = r;
        if (strncmp(all[r].provider, all[first].provider, NAME_BYTES) == 0)
            continue;
        return rf_fail_rank(RF_EINVAL, control->rank == r ? first : r,
                            "rank %d asks for provider %.27s, rank %d for %.27s; give every rank "
                            "the same RF_PROVIDER",
                            r, all[r].provider, first, all[first].provider);
    }
    *out = first < 0 ? NULL : &all[first];
    return 0;
}

/* A rank that has named none takes what others have named. */
static void take_wish(struct chooser *c, const struct wish *wish)
{
    char name[NAME_BYTES];
    c->reach = RF_REACH_ANY;
    if (!wish)
        return;
    snprintf(name, sizeof(name), "%.27s", wish->provider);
    if (c->mine.reach == RF_REACH_ANY)
        rf_provider_resolve(name, &c->mine);
    c->reach = c->mine.reach;
}

static int agree(struct chooser *c)
{
    struct rf_control *control = c->control;
    struct wish mine = {.reach = (int32_t)c->mine.reach, .host = control->host};
    snprintf(mine.provider, sizeof(mine.provider), "%.27s", c->mine.name);
    struct wish *all = rf_alloc((size_t)control->size * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory for the wishes of %d ranks", control->size);
    const struct wish *wish = NULL;
    int rc = control->ops->all_gather(control, &mine, sizeof(mine), all, EXCHANGE_TIMEOUT_S);
    if (rc == 0)
        rc = find_wish(control, all, &wish);
    if (rc == 0)
        take_wish(c, wish);
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

static int open_network(struct chooser *c, char *why, size_t why_bytes, struct rf_transport **out)
{
    rf_provider_need_network(&c->mine);
    const struct rf_provider *row = c->mine.network;
    const struct rf_opening opening = {.provider = row,
                                       .table = &rf_provider_table,
                                       .name = row->name ? row->name : c->mine.fabric,
                                       .fabric = c->mine.fabric,
                                       .named = c->mine.reach != RF_REACH_ANY,
                                       .hosts = c->hosts,
                                       .why = why,
                                       .why_bytes = why_bytes};
    return row->open(c->control, &opening, out);
}

static int use_network(struct chooser *c, struct rf_transport **out)
{
    RETURN_IF_ERROR(open_network(c, c->why, c->why_bytes, out));
    size_t used = strlen(c->why);
    bool could_share = c->reach == RF_REACH_NETWORK && c->host_count == 1 &&
                       !(c->mine.network->traits & RF_PROVIDER_ONE_HOST);
    if (used + 72 > c->why_bytes)
        return 0;
    if (could_share)
        snprintf(c->why + used, c->why_bytes - used,
                 "; all ranks are on one host, so --provider %s would be faster",
                 c->mine.memory->name);
    else if (*c->not_shared)
        snprintf(c->why + used, c->why_bytes - used, "; not %s: %s", c->mine.memory->name,
                 c->not_shared);
    return 0;
}

/* Shared memory to the ranks of this host, and the network to all others. Takes intra_host. */
static int add_network(struct chooser *c, struct rf_transport *intra_host,
                       struct rf_transport **out)
{
    struct rf_transport *inter_host = NULL;
    char network[160] = "";
    int rc = open_network(c, network, sizeof(network), &inter_host);
    if (rc < 0) {
        intra_host->ops->destroy(intra_host);
        return rc;
    }
    snprintf(c->why, c->why_bytes,
             "memory that ranks share within each of %d hosts; between them %s", c->host_count,
             network);
    return rf_hybrid_create(intra_host, inter_host, c->hosts, out);
}

/* Uses the network if memory cannot be shared and nobody has named shared memory. */
static int use_best(struct chooser *c, struct rf_transport **out)
{
    const bool one = c->reach == RF_REACH_HOST || c->host_count == 1;
    const struct rf_provider *row = c->mine.memory;
    const struct rf_opening opening = {.provider = row,
                                       .table = &rf_provider_table,
                                       .name = row->name,
                                       .hosts = one ? NULL : c->hosts};
    struct rf_transport *memory = NULL;
    if (c->reach == RF_REACH_THREADS)
        return rf_fail(RF_EINVAL,
                       "provider %s is for threads of one process, which open it by "
                       "rf_comm_open_loopback",
                       c->mine.name);
    if (c->reach == RF_REACH_NETWORK || (!one && c->host_count == c->control->size))
        return use_network(c, out);
    int rc = row->open(c->control, &opening, &memory);
    if (rc == RF_ENOTSUP && c->reach == RF_REACH_ANY) {
        snprintf(c->not_shared, sizeof(c->not_shared), "%.159s", rf_last_error()->message);
        return use_network(c, out);
    }
    if (rc == RF_ENOTSUP)
        return rf_fail_rank(RF_EINVAL, rf_last_error()->rank,
                            "provider %s works within one host: %.200s", row->name,
                            rf_last_error()->message);
    if (rc < 0)
        return rc;
    if (!one)
        return add_network(c, memory, out);
    snprintf(c->why, c->why_bytes, "%s is memory that the ranks share, %s", row->name,
             c->reach == RF_REACH_HOST ? "as asked for" : "as all of them are on one host");
    *out = memory;
    return 0;
}

int rf_transport_create(struct rf_control *control, const char *provider, struct rf_transport **out,
                        char *why, size_t why_bytes)
{
    struct chooser c = {.control = control, .why = why, .why_bytes = why_bytes};
    if (control->size == 1) {
        RETURN_IF_ERROR(rf_provider_find(provider, NULL));
        snprintf(why, why_bytes, "there is only one rank");
        return rf_self_transport(out);
    }
    rf_provider_resolve(provider, &c.mine);
    c.hosts = rf_alloc((size_t)control->size * sizeof(*c.hosts));
    if (!c.hosts)
        return rf_fail(RF_ENOMEM, "no memory for the hosts of %d ranks", control->size);
    int rc = agree(&c);
    if (rc == 0)
        rc = use_best(&c, out);
    rf_free(c.hosts);
    if (rc == 0)
        rf_log("transport", 2, "%s%s", why, (*out)->yield ? "; more ranks than cores" : "");
    return rc;
}
