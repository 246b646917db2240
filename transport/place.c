/* SPDX-License-Identifier: MIT
 *
 * Chooses the address on which each rank opens its port; errors that all ranks return. Used by ofi/
 * and tcp/.
 */
#include "place.h"

#include "control/control.h"

enum { REASON_BYTES = 256 };
static const double EXCHANGE_TIMEOUT_S = 60;

struct location {
    char host[64];    /* identifies one running kernel; equal means one host */
    char address[64]; /* numeric IP with which the rank joined */
};

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static bool is_same_host(const struct location *a, const struct location *b)
{
    return strcmp(a->host, b->host) == 0;
}

/* Others reach a rank that joined over loopback through the address that rank 0 has towards them.
 */
static const char *choose_address(const struct location *locations, int rank, int size)
{
    const char *named = rf_env("RF_INTERFACE");
    if (named && *named)
        return named;
    bool all_local = true;
    for (int r = 0; r < size; r++)
        all_local = all_local && is_same_host(&locations[r], &locations[0]);
    if (!is_loopback(locations[rank].address) || all_local)
        return locations[rank].address;
    for (int r = 0; r < size; r++)
        if (is_same_host(&locations[r], &locations[rank]) && !is_loopback(locations[r].address))
            return locations[r].address;
    return locations[rank].address;
}

int rf_place_find(struct rf_control *control, struct rf_place *out)
{
    const int rank = control->rank, size = control->size;
    struct location here = {0}, *all = rf_alloc((size_t)size * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory for the addresses of %d ranks", size);
    rf_host_name(here.host, sizeof(here.host));
    rf_control_local_address(control, here.address, sizeof(here.address));
    int rc = control->ops->all_gather(control, &here, sizeof(here), all, EXCHANGE_TIMEOUT_S);
    out->here = out->index = 0;
    for (int r = 0; rc == 0 && r < size; r++)
        all[r].host[sizeof(here.host) - 1] = all[r].address[sizeof(here.address) - 1] = 0;
    for (int r = 0; rc == 0 && r < size; r++) {
        const bool is_here = is_same_host(&all[r], &all[rank]);
        out->here += is_here;
        out->index += is_here && r < rank;
    }
    if (rc == 0)
        snprintf(out->address, sizeof(out->address), "%s", choose_address(all, rank, size));
    rf_free(all);
    return rc;
}

int rf_place_fail(struct rf_control *control, int first, int status, const char *mine)
{
    const size_t size = (size_t)control->size;
    char reason[REASON_BYTES] = "";
    snprintf(reason, sizeof(reason), "%.255s", mine);
    char *reasons = rf_alloc(size * REASON_BYTES);
    if (!reasons)
        return rf_fail(RF_ENOMEM, "no memory for what %zu ranks say", size);
    int rc = control->ops->all_gather(control, reason, sizeof(reason), reasons, EXCHANGE_TIMEOUT_S);
    if (rc == 0)
        rc = rf_fail_rank(status < RF_EAGAIN ? RF_ENET : status, first,
                          "rank %d cannot open the network: %.255s", first,
                          reasons + (size_t)first * REASON_BYTES);
    rf_free(reasons);
    return rc;
}
