/* SPDX-License-Identifier: MIT
 *
 * Functions shared by both sides of a message and the connections of tcp.c: expected operations of
 * a peer, completions, memory of early messages, and the loss of a connection.
 */
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tcp.h"

void rf_tcp_expect(struct rf_tcp *h, struct rf_tcp_peer *peer, int change)
{
    peer->expected += change;
    const bool wanted = peer->expected > 0 && peer->state == RF_TCP_OPEN;
    if (wanted == (peer->place >= 0))
        return;
    if (wanted) {
        peer->place = h->watched_count;
        h->watched[h->watched_count++] = peer->rank;
        return;
    }
    const int last = h->watched[--h->watched_count];
    h->watched[peer->place] = last;
    h->peers[last].place = peer->place;
    peer->place = -1;
}

void rf_tcp_complete(struct rf_tcp *h, struct rf_posted *node, int status)
{
    node->status = (int8_t)status;
    rf_posted_append(&h->done, node);
}

/* ---- messages before their receives ---------------------------------------------------------- */

/* Memory of long ones is kept for reuse, because the system allocates it slowly. */
struct rf_tcp_early *rf_tcp_allocate_early(struct rf_tcp *h, size_t bytes)
{
    struct rf_tcp_early *early = h->spare;
    if (bytes < RF_TCP_KEPT)
        return rf_realloc(NULL, sizeof(*early) + bytes);
    if (!early)
        return rf_realloc(NULL, sizeof(*early) + RF_TCP_EAGER);
    h->spare = early->next;
    h->spare_count--;
    return early;
}

void rf_tcp_free_early(struct rf_tcp *h, struct rf_tcp_early *early)
{
    if (!early || early->frame.kind != RF_TCP_DATA || early->frame.bytes < RF_TCP_KEPT ||
        h->spare_count == RF_TCP_SPARE) {
        rf_free(early);
        return;
    }
    early->next = h->spare;
    h->spare = early;
    h->spare_count++;
}

void rf_tcp_drop_early(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    while (peer->early) {
        struct rf_tcp_early *early = peer->early;
        peer->early = early->next;
        rf_tcp_free_early(h, early);
    }
    peer->last_early = peer->arriving_early = NULL;
}

void rf_tcp_unlink_early(struct rf_tcp_peer *peer, struct rf_tcp_early *early)
{
    struct rf_tcp_early *before = NULL, **link = &peer->early;
    while (*link && *link != early) {
        before = *link;
        link = &before->next;
    }
    if (!*link)
        return;
    *link = early->next;
    if (peer->last_early == early)
        peer->last_early = before;
}

/* ---- states ---------------------------------------------------------------------------------- */

void rf_tcp_set_state(struct rf_tcp *h, struct rf_tcp_peer *peer, enum rf_tcp_state state)
{
    h->unopened -= peer->state < RF_TCP_OPEN && state >= RF_TCP_OPEN;
    h->waiting += (state == RF_TCP_WAITING) - (peer->state == RF_TCP_WAITING);
    peer->state = state;
    rf_tcp_expect(h, peer, 0);
}

static void fail_all(struct rf_tcp *h, struct rf_tcp_peer *peer, struct rf_posted_list *list,
                     bool expected)
{
    struct rf_posted *node;
    while ((node = rf_posted_take(list)) != NULL) {
        if (expected)
            rf_tcp_expect(h, peer, -1);
        rf_tcp_complete(h, node, RF_EPEER);
    }
}

/* Drops a message of which only a part has arrived. */
static void drop_arriving(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    if (peer->arriving) {
        rf_tcp_expect(h, peer, -1);
        rf_tcp_complete(h, peer->arriving, RF_EPEER);
    }
    if (peer->arriving_early) {
        rf_tcp_unlink_early(peer, peer->arriving_early);
        rf_tcp_free_early(h, peer->arriving_early);
    }
    peer->arriving = NULL;
    peer->arriving_early = NULL;
    peer->left_bytes = peer->head_bytes = 0;
}

void rf_tcp_lose(struct rf_tcp *h, struct rf_tcp_peer *peer, int reason)
{
    if (peer->fd >= 0)
        close(peer->fd);
    peer->fd = -1;
    peer->reason = reason;
    peer->payload = NULL;
    peer->stage_begin = peer->stage_end = 0;
    peer->control_count = peer->ready_count = 0;
    fail_all(h, peer, &peer->writing, false);
    fail_all(h, peer, &peer->queued, false);
    fail_all(h, peer, &peer->held, true);
    drop_arriving(h, peer);
    if (!peer->left)
        fail_all(h, peer, &peer->recvs, true);
    rf_tcp_set_state(h, peer, RF_TCP_LOST);
    rf_log("transport", 2, "tcp: the connection to rank %d is closed%s%s", peer->rank,
           reason ? ": " : "", reason ? strerror(reason) : "");
}
