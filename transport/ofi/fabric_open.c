/* SPDX-License-Identifier: MIT
 *
 * Opens the libfabric transport. Ranks exchange three things over the control link: their hosts,
 * their offers, and the addresses of their endpoints. A failed rank still takes part to the end and
 * sends its reason, so that the others do not wait for it. Called by choose.c.
 */
#include "../place.h"
#include "fabric.h"

enum { ADDRESS_BYTES = 256 };
static const double EXCHANGE_TIMEOUT_S = 60;

/* What a rank has opened. Short, because rank 0 sends all offers to all ranks; for the same reason
 * the next round sends addresses at their actual length. */
struct offer {
    int32_t status;
    uint32_t library; /* libfabric's version */
    uint32_t protocol, protocol_version, provider_version;
    uint32_t address_bytes;
    char provider[44];
};

static int make_offer(struct rf_fabric *f, struct offer *offer, uint8_t address[ADDRESS_BYTES])
{
    size_t bytes = ADDRESS_BYTES;
    int rc = fi_getname(&f->ep->fid, address, &bytes);
    if (rc || bytes > ADDRESS_BYTES)
        return rf_fail(RF_ENET, "%s: reading the endpoint's address failed: %s", f->name,
                       rf_ofi()->strerror(rc ? -rc : FI_ETOOSMALL));
    offer->address_bytes = (uint32_t)bytes;
    offer->library = rf_ofi()->version();
    offer->protocol = f->info->ep_attr->protocol;
    offer->protocol_version = f->info->ep_attr->protocol_version;
    offer->provider_version = f->info->fabric_attr->prov_version;
    snprintf(offer->provider, sizeof(offer->provider), "%.43s", f->name);
    return 0;
}

/* Opens this rank's endpoint. */
static int open_here(const struct rf_control *control, const struct rf_opening *opening,
                     const struct rf_place *place, struct rf_fabric **out, struct offer *offer,
                     uint8_t address[ADDRESS_BYTES])
{
    struct fi_info *info = NULL;
    if ((opening->provider->traits & RF_PROVIDER_ONE_HOST) && place->here < control->size)
        return rf_fail(RF_EINVAL,
                       "provider %s works within one host, and only %d of %d ranks are "
                       "on this one",
                       opening->name, place->here, control->size);
    RETURN_IF_ERROR(rf_fabric_select(opening, place->address, &info));
    struct rf_fabric *f = NULL;
    RETURN_IF_ERROR(rf_fabric_open(opening, info, control->rank, control->size, &f));
    int rc = make_offer(f, offer, address);
    if (rc < 0) {
        rf_fabric_close(f);
        return rc;
    }
    f->transport.yield = place->here > rf_host_cores();
    *out = f;
    return 0;
}

/* Offers come from other processes, and are checked before they are used. */
static int check_offer(const struct offer *mine, const struct offer *theirs, int rank, int other)
{
    if (theirs->address_bytes == 0 || theirs->address_bytes > ADDRESS_BYTES ||
        theirs->provider[sizeof(theirs->provider) - 1])
        return rf_fail_rank(RF_ECORRUPT, other, "rank %d sent an address that makes no sense",
                            other);
    /* The messages of providers change with the major version, although the versions of their
     * protocols do not: shared memory has another layout, or an answer never comes. */
    if (FI_MAJOR(mine->library) != FI_MAJOR(theirs->library))
        return rf_fail_rank(RF_EINVAL, other,
                            "rank %d has libfabric %u.%u, rank %d libfabric %u.%u, and these do "
                            "not understand each other; install the same major version for every "
                            "rank, or use the provider tcp",
                            rank, FI_MAJOR(mine->library), FI_MINOR(mine->library), other,
                            FI_MAJOR(theirs->library), FI_MINOR(theirs->library));
    if (strcmp(mine->provider, theirs->provider) != 0 || mine->protocol != theirs->protocol ||
        mine->protocol_version != theirs->protocol_version)
        return rf_fail_rank(RF_EINVAL, other,
                            "rank %d uses provider %s (version %u.%u), rank %d %s (version %u.%u); "
                            "give every rank the same RF_PROVIDER and libfabric",
                            rank, mine->provider, FI_MAJOR(mine->provider_version),
                            FI_MINOR(mine->provider_version), other, theirs->provider,
                            FI_MAJOR(theirs->provider_version), FI_MINOR(theirs->provider_version));
    return 0;
}

static int connect_peers(struct rf_fabric *f, const uint8_t *addresses, size_t stride)
{
    for (int r = 0; r < f->transport.size; r++) {
        int rc = fi_av_insert(f->av, addresses + (size_t)r * stride, 1, &f->peers[r], 0, NULL);
        if (rc != 1)
            return rf_fail_rank(RF_ENET, r, "%s: the address of rank %d is refused: %s", f->name, r,
                                rc < 0 ? rf_ofi()->strerror(-rc) : "no reason given");
    }
    return 0;
}

/* Called if all offers are compatible. */
static int exchange_addresses(struct rf_control *control, struct rf_fabric *f,
                              const struct offer *offers, const uint8_t address[ADDRESS_BYTES])
{
    size_t longest = 0, size = (size_t)control->size;
    for (size_t r = 0; r < size; r++)
        longest = offers[r].address_bytes > longest ? offers[r].address_bytes : longest;
    uint8_t *addresses = rf_alloc(size * longest);
    if (!addresses)
        return rf_fail(RF_ENOMEM, "no memory for the addresses of %zu ranks", size);
    int rc = control->ops->all_gather(control, address, longest, addresses, EXCHANGE_TIMEOUT_S);
    if (rc == 0)
        rc = connect_peers(f, addresses, longest);
    rf_free(addresses);
    return rc;
}

/* f is NULL if this rank could open nothing; `mine` has the reason. */
static int exchange_offers(struct rf_control *control, struct rf_fabric *f,
                           const struct offer *mine, const uint8_t address[ADDRESS_BYTES],
                           const char *why, struct offer *offers)
{
    RETURN_IF_ERROR(
        control->ops->all_gather(control, mine, sizeof(*mine), offers, EXCHANGE_TIMEOUT_S));
    for (int r = 0; r < control->size; r++)
        if (offers[r].status < 0)
            return rf_place_fail(control, r, offers[r].status, why);
    /* All ranks reach the same result about the offers: all continue, or none. */
    for (int r = 0; r < control->size; r++)
        RETURN_IF_ERROR(check_offer(mine, &offers[r], control->rank, r));
    return exchange_addresses(control, f, offers, address);
}

static int exchange(struct rf_control *control, const struct rf_opening *opening,
                    struct offer *offers, struct rf_fabric **out)
{
    struct rf_place place;
    struct offer offer = {0};
    uint8_t address[ADDRESS_BYTES] = {0};
    RETURN_IF_ERROR(rf_place_find(control, &place));

    struct rf_fabric *f = NULL;
    int opened = open_here(control, opening, &place, &f, &offer, address);
    struct rf_error reason = *rf_last_error();
    offer.status = opened < 0 ? opened : 0;
    int rc = exchange_offers(control, f, &offer, address, opened < 0 ? reason.message : "", offers);
    if (opened < 0)
        rc = rf_fail_error(&reason);
    if (rc < 0) {
        rf_fabric_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

int rf_fabric_create(struct rf_control *control, const struct rf_opening *opening,
                     struct rf_transport **out)
{
    const size_t size = (size_t)control->size;
    struct offer *offers = rf_alloc(size * sizeof(*offers));
    struct rf_fabric *f = NULL;
    int rc = offers ? exchange(control, opening, offers, &f)
                    : rf_fail(RF_ENOMEM, "no memory for the addresses of %zu ranks", size);
    rf_free(offers);
    if (rc < 0)
        return rc;
    *out = &f->transport;
    return 0;
}
