/* SPDX-License-Identifier: MIT
 *
 * Opens the transport over TCP sockets: each rank listens on a port of its own, and the ranks
 * exchange their addresses over the control link. Connections are opened when there are messages. A
 * failed rank takes part to the end, so that all ranks return the same error. Called by choose.c.
 */
#include "../control/control.h"
#include "../control/socket.h"
#include "../place.h"
#include "../providers.h"
#include "tcp.h"

static const double EXCHANGE_TIMEOUT_S = 60;

/* The record of an opened rank. */
struct offer {
    int32_t status, port;
    char address[64];
    uint8_t job[RF_JOB_BYTES]; /* rank 0's identifies this communicator, in every handshake */
};

/* Offers come from other processes, and are checked before they are used. */
static int take_offers(struct rf_tcp *h, const struct offer *offers)
{
    for (int r = 0; r < h->transport.size; r++) {
        const struct offer *offer = &offers[r];
        if (offer->port <= 0 || offer->port > 65535 || !memchr(offer->address, 0, 64))
            return rf_fail_rank(RF_ECORRUPT, r, "rank %d sent an address that makes no sense", r);
        snprintf(h->addresses[r].host, sizeof(h->addresses[r].host), "%s", offer->address);
        h->addresses[r].port = offer->port;
    }
    memcpy(h->key.job, offers[0].job, RF_JOB_BYTES);
    return 0;
}

static int exchange(struct rf_control *control, struct rf_tcp *h, const char *address, int opened,
                    const char *reason, int port)
{
    struct offer mine = {.status = opened, .port = port}, *all;
    all = rf_alloc((size_t)control->size * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "tcp: no memory for the addresses of %d ranks", control->size);
    snprintf(mine.address, sizeof(mine.address), "%s", address);
    rf_random(mine.job, sizeof(mine.job));
    int rc = control->ops->all_gather(control, &mine, sizeof(mine), all, EXCHANGE_TIMEOUT_S);
    int first = 0;
    while (rc == 0 && first < control->size && all[first].status == 0)
        first++;
    if (rc == 0 && first < control->size)
        rc = rf_place_fail(control, first, all[first].status, reason);
    if (rc == 0)
        rc = take_offers(h, all);
    rf_free(all);
    return rc;
}

static int open_here(struct rf_control *control, const struct rf_place *place, struct rf_tcp **out,
                     int *port)
{
    const struct rf_job_key *key = rf_control_key(control);
    RETURN_IF_ERROR(rf_tcp_end_open(control->rank, control->size, out));
    if (key)
        (*out)->key = *key;
    else
        RETURN_IF_ERROR(rf_job_key_init(&(*out)->key, NULL));
    return rf_tcp_listen(*out, place->address, port);
}

int rf_tcp_create(struct rf_control *control, const struct rf_opening *opening,
                  struct rf_transport **out)
{
    struct rf_place place;
    struct rf_tcp *h = NULL;
    int port = 0;
    RETURN_IF_ERROR(rf_place_find(control, &place));
    int opened = open_here(control, &place, &h, &port);
    const struct rf_error reason = *rf_last_error();
    int rc = exchange(control, h, place.address, opened < 0 ? opened : 0,
                      opened < 0 ? reason.message : "", port);
    if (opened < 0)
        rc = rf_fail_error(&reason);
    if (rc < 0) {
        rf_tcp_end_close(h);
        return rc;
    }
    h->transport.yield = place.here > rf_host_cores();
    h->affinity.index = place.index;
    h->affinity.count = place.here;
    snprintf(opening->why, opening->why_bytes, "%s is TCP by the library's own sockets, %s",
             opening->name,
             opening->named ? "as asked for" : "which every host has and which is the default");
    *out = &h->transport;
    return 0;
}

int rf_tcp_probe(const struct rf_provider *self, struct rf_provider_lines *lines)
{
    char address[64];
    rf_host_address(address, sizeof(address));
    rf_provider_add(lines, self, self->name, address);
    return 0;
}
