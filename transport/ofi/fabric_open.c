/* SPDX-License-Identifier: MIT
 *
 * Opens the libfabric transport. Ranks exchange three things over the control link: where they are,
 * what they have opened, and the addresses of their endpoints. A rank that fails still takes part
 * to the end and sends its reason, so that the others do not wait for it. Called by choose.c.
 */
#include "../control/control.h"
#include "base/base.h"
#include "fabric.h"

enum { ADDRESS_BYTES = 256 };
static const double EXCHANGE_TIMEOUT_S = 60;

/* First round: where a rank is. */
struct location {
    char host[64];    /* of one running kernel; equal means one host */
    char address[64]; /* numeric IP by which it joined */
};

/* Second round: what it opened. Short, as rank 0 sends those of all ranks to all ranks; for the
 * same reason the third round has the addresses at the length they are of, or, where a rank could
 * not open anything, its reason. */
struct offer {
    int32_t status;
    uint32_t protocol, protocol_version, provider_version;
    uint32_t address_bytes;
    char provider[44];
};

enum { REASON_BYTES = 256 };

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* The address to open endpoints on. Ranks that joined over loopback are reached by the others
 * through the address that rank 0 has towards those. */
static const char *choose_address(const struct location *locations, int rank, int size)
{
    const char *named = rf_env("RF_INTERFACE");
    if (named && *named)
        return named;
    bool all_local = true;
    for (int r = 0; r < size; r++)
        all_local = all_local && strcmp(locations[r].host, locations[0].host) == 0;
    if (!is_loopback(locations[rank].address) || all_local)
        return locations[rank].address;
    for (int r = 0; r < size; r++)
        if (strcmp(locations[r].host, locations[rank].host) == 0 &&
            !is_loopback(locations[r].address))
            return locations[r].address;
    return locations[rank].address;
}

static int ranks_here(const struct location *locations, int rank, int size)
{
    int count = 0;
    for (int r = 0; r < size; r++)
        count += strcmp(locations[r].host, locations[rank].host) == 0;
    return count;
}

static int make_offer(struct rf_fabric *f, struct offer *offer, uint8_t address[ADDRESS_BYTES])
{
    size_t bytes = ADDRESS_BYTES;
    int rc = fi_getname(&f->ep->fid, address, &bytes);
    if (rc || bytes > ADDRESS_BYTES)
        return rf_fail(RF_ENET, "%s: reading the endpoint's address failed: %s", f->name,
                       rf_ofi()->strerror(rc ? -rc : FI_ETOOSMALL));
    offer->address_bytes = (uint32_t)bytes;
    offer->protocol = f->info->ep_attr->protocol;
    offer->protocol_version = f->info->ep_attr->protocol_version;
    offer->provider_version = f->info->fabric_attr->prov_version;
    snprintf(offer->provider, sizeof(offer->provider), "%.43s", f->name);
    return 0;
}

/* Opens this rank's end. */
static int open_here(const struct location *locations, const struct rf_opening *opening, int rank,
                     int size, struct rf_fabric **out, struct offer *offer,
                     uint8_t address[ADDRESS_BYTES])
{
    struct fi_info *info = NULL;
    const char *on = choose_address(locations, rank, size);
    const int here = ranks_here(locations, rank, size);
    if ((opening->provider->traits & RF_PROVIDER_ONE_HOST) && here < size)
        return rf_fail(RF_EINVAL,
                       "provider %s works within one host, and only %d of %d ranks are "
                       "on this one",
                       opening->name, here, size);
    RETURN_IF_ERROR(rf_fabric_select(opening, on, &info));
    struct rf_fabric *f = NULL;
    RETURN_IF_ERROR(rf_fabric_open(opening, info, rank, size, &f));
    int rc = make_offer(f, offer, address);
    if (rc < 0) {
        rf_fabric_close(f);
        return rc;
    }
    f->transport.yield = here > rf_host_cores();
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

/* Third round, if a rank has opened nothing: all ranks return the reason of the first such rank. */
static int exchange_reasons(struct rf_control *control, const struct offer *offers, int size,
                            const char *mine)
{
    char reason[REASON_BYTES] = "";
    snprintf(reason, sizeof(reason), "%.255s", mine);
    char *reasons = rf_alloc((size_t)size * REASON_BYTES);
    if (!reasons)
        return rf_fail(RF_ENOMEM, "no memory for what %d ranks say", size);
    int rc = control->ops->all_gather(control, reason, sizeof(reason), reasons, EXCHANGE_TIMEOUT_S);
    int first = 0;
    while (offers[first].status == 0)
        first++;
    int status = offers[first].status;
    if (rc == 0)
        rc = rf_fail_rank(status < RF_EAGAIN ? RF_ENET : status, first,
                          "rank %d cannot open the network: %.255s", first,
                          reasons + (size_t)first * REASON_BYTES);
    rf_free(reasons);
    return rc;
}

/* Third round, if all offers fit together. */
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

/* The second round and the third. f is NULL where this rank could open nothing: why. */
static int exchange_offers(struct rf_control *control, struct rf_fabric *f,
                           const struct offer *mine, const uint8_t address[ADDRESS_BYTES],
                           const char *why, struct offer *offers)
{
    RETURN_IF_ERROR(
        control->ops->all_gather(control, mine, sizeof(*mine), offers, EXCHANGE_TIMEOUT_S));
    for (int r = 0; r < control->size; r++)
        if (offers[r].status < 0)
            return exchange_reasons(control, offers, control->size, why);
    /* Whether offers fit together looks the same from everywhere: all go on, or none. */
    for (int r = 0; r < control->size; r++)
        RETURN_IF_ERROR(check_offer(mine, &offers[r], control->rank, r));
    return exchange_addresses(control, f, offers, address);
}

static int exchange(struct rf_control *control, const struct rf_opening *opening,
                    struct location *locations, struct offer *offers, struct rf_fabric **out)
{
    const int rank = control->rank, size = control->size;
    struct location here = {0};
    struct offer offer = {0};
    uint8_t address[ADDRESS_BYTES] = {0};
    rf_host_name(here.host, sizeof(here.host));
    rf_control_local_address(control, here.address, sizeof(here.address));
    RETURN_IF_ERROR(
        control->ops->all_gather(control, &here, sizeof(here), locations, EXCHANGE_TIMEOUT_S));
    for (int r = 0; r < size; r++)
        locations[r].host[sizeof(here.host) - 1] = locations[r].address[sizeof(here.address) - 1] =
            0;

    struct rf_fabric *f = NULL;
    int opened = open_here(locations, opening, rank, size, &f, &offer, address);
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
    struct location *locations = rf_alloc(size * sizeof(*locations));
    struct offer *offers = rf_alloc(size * sizeof(*offers));
    struct rf_fabric *f = NULL;
    int rc = locations && offers
                 ? exchange(control, opening, locations, offers, &f)
                 : rf_fail(RF_ENOMEM, "no memory for the addresses of %zu ranks", size);
    rf_free(locations);
    rf_free(offers);
    if (rc < 0)
        return rc;
    *out = &f->transport;
    return 0;
}
