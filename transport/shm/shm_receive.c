/* SPDX-License-Identifier: MIT
 *
 * The receiving side of shm.c: matching, and bringing the data to where they are wanted. What a
 * line says is read once and then checked, since a faulty peer may change it at any time.
 */
#include "shm.h"

#include "base/base.h"

enum { REPORT_EVERY = RF_SHM_LINES / 4, PULL_BYTES = 4 << 20 };
#define NO_SLOT 0xff
#define NO_TICKET 0xff

static int fail_invalid(int rank, const char *what)
{
    return rf_fail_rank(RF_ECORRUPT, rank,
                        "shm: rank %d has written a message into the shared memory whose %s makes "
                        "no sense",
                        rank, what);
}

static unsigned bucket_of(int peer, uint64_t tag)
{
    uint64_t mixed = (tag ^ ((uint64_t)(unsigned)peer << 40)) * 0x9e3779b97f4a7c15ull;
    return (unsigned)(mixed >> 58) % RF_SHM_BUCKETS;
}

static struct rf_shm_node *find_recv(struct rf_shm *h, int peer, uint64_t tag)
{
    struct rf_shm_list *list = &h->recvs[bucket_of(peer, tag)];
    struct rf_shm_node *before = NULL;
    for (struct rf_shm_node *node = list->first; node; before = node, node = node->next) {
        if (node->tag != tag || node->peer != peer)
            continue;
        if (before)
            before->next = node->next;
        else
            list->first = node->next;
        if (list->last == node)
            list->last = before;
        return node;
    }
    return NULL;
}

/* ---- acknowledgements -------------------------------------------------------------------- */

static void ack_done(struct rf_shm_peer *peer, unsigned ticket)
{
    peer->done ^= 1ull << ticket;
    __atomic_store_n(&peer->acks_out->done, peer->done, __ATOMIC_RELEASE);
}

static void ack_go(struct rf_shm_peer *peer, unsigned ticket)
{
    peer->go ^= 1ull << ticket;
    __atomic_store_n(&peer->acks_out->go, peer->go, __ATOMIC_RELEASE);
}

static void free_slot(struct rf_shm_peer *peer, unsigned slot)
{
    peer->slots ^= 1ull << slot;
    __atomic_store_n(&peer->acks_out->slots, peer->slots, __ATOMIC_RELEASE);
}

void rf_shm_release_zero_copy(struct rf_transport *t, int rank, uint32_t token)
{
    struct rf_shm *h = (struct rf_shm *)t;
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    unsigned slot = token >> 16 & 0xff;
    if (slot != NO_SLOT) {
        peer->held_slots--;
        free_slot(peer, slot);
    }
    if ((token >> 8 & 0xff) != NO_TICKET)
        ack_done(peer, token >> 8 & 0xff);
}

/* ---- a message and its receive --------------------------------------------------------------- */

static void complete_in_place(struct rf_shm *h, struct rf_shm_node *recv, const void *data,
                              unsigned ticket, unsigned slot)
{
    recv->buffer = (void *)(uintptr_t)data;
    recv->in_place = 1;
    recv->ticket = (uint8_t)ticket;
    recv->slot = (uint8_t)slot;
    rf_shm_append(&h->done, recv);
}

/* All of it has come with its line. */
static bool is_at_hand(const struct rf_shm_line *line)
{
    return line->what.kind == RF_SHM_SHORT || line->what.kind == RF_SHM_EAGER_ONE;
}

/* It comes in pieces, if the receiver asks for them. */
static bool has_pieces(const struct rf_shm_line *line)
{
    return line->what.kind == RF_SHM_STAGED || line->what.kind == RF_SHM_READABLE;
}

static bool can_hold_slot(const struct rf_shm_peer *peer, const struct rf_shm_node *recv)
{
    return recv->zero_copy && peer->held_slots < RF_SHM_HELD_SLOTS;
}

static bool is_slot(const struct rf_shm_what *what)
{
    return what->slot < RF_SHM_UNITS && what->bytes > 0 && what->bytes <= RF_SHM_SLOT &&
           what->slot * (size_t)RF_SHM_UNIT + what->bytes <=
               sizeof(((struct rf_shm_channel *)0)->units);
}

/* The message is longer than the receive: nothing of it is copied. */
static int refuse(struct rf_shm *h, struct rf_shm_node *recv, const struct rf_shm_line *line)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, recv->peer);
    if (!is_at_hand(line))
        ack_done(peer, line->what.ticket);
    if (has_pieces(line))
        ack_go(peer, line->what.ticket);
    recv->status = RF_EMISMATCH;
    recv->moved = line->what.bytes;
    rf_shm_append(&h->done, recv);
    return 0;
}

/* All of them, also where some of the message has been read. */
static int ask_for_pieces(struct rf_shm *h, struct rf_shm_node *recv)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, recv->peer);
    if (peer->recvs[recv->ticket])
        return fail_invalid(recv->peer, "ticket");
    recv->moved = 0;
    peer->recvs[recv->ticket] = recv;
    ack_go(peer, recv->ticket);
    return 0;
}

/* data: where those of a message at hand are, if not in its line. */
static int join(struct rf_shm *h, struct rf_shm_node *recv, const struct rf_shm_line *line,
                const unsigned char *data)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, recv->peer);
    recv->contract = line->contract;
    if (line->what.bytes > recv->bytes)
        return refuse(h, recv, line);
    recv->bytes = line->what.bytes;
    if (line->what.kind == RF_SHM_EAGER_ONE && can_hold_slot(peer, recv)) {
        peer->held_slots++;
        complete_in_place(h, recv, data, NO_TICKET, line->what.slot);
        return 0;
    }
    if (is_at_hand(line)) {
        if (line->what.bytes > 0)
            memcpy(recv->buffer, line->what.bytes > RF_SHM_INLINE ? data : line->data,
                   line->what.bytes);
        rf_shm_append(&h->done, recv);
        return 0;
    }
    uint64_t offset;
    memcpy(&offset, line->data, sizeof(offset));
    recv->ticket = line->what.ticket;
    if (line->what.kind == RF_SHM_READABLE && peer->process > 0) {
        recv->from = (const unsigned char *)(uintptr_t)offset;
        recv->remote = 1;
        rf_shm_append(&h->pulls, recv);
        return 0;
    }
    if (has_pieces(line))
        return ask_for_pieces(h, recv);
    unsigned char *from = NULL;
    RETURN_IF_ERROR(rf_shm_reach(&h->transport, recv->peer, offset, line->what.bytes, &from));
    if (recv->zero_copy) {
        complete_in_place(h, recv, from, line->what.ticket, NO_SLOT);
        return 0;
    }
    recv->from = from;
    rf_shm_append(&h->pulls, recv);
    return 0;
}

int rf_shm_pull(struct rf_shm *h)
{
    struct rf_shm_node *recv = h->pulls.first;
    struct rf_shm_peer *peer = rf_shm_peer_of(h, recv->peer);
    uint64_t left = recv->bytes - recv->moved;
    size_t bytes = left < PULL_BYTES ? (size_t)left : PULL_BYTES;
    unsigned char *to = (unsigned char *)recv->buffer + recv->moved;
    int rc = 0;
    if (recv->remote)
        rc = rf_shm_read(h, recv->peer, to, recv->from + recv->moved, bytes);
    else
        rf_copy_bytes(to, recv->from + recv->moved, bytes, recv->bytes);
    if (rc == RF_EAGAIN)
        return ask_for_pieces(h, rf_shm_take(&h->pulls));
    RETURN_IF_ERROR(rc);
    recv->moved += bytes;
    if (recv->moved < recv->bytes)
        return 0;
    ack_done(peer, recv->ticket);
    if (recv->remote)
        ack_go(peer, recv->ticket);
    rf_shm_append(&h->done, rf_shm_take(&h->pulls));
    return 0;
}

const unsigned char *rf_shm_slot(struct rf_shm_peer *peer, unsigned unit, size_t bytes)
{
    if (rf_shm_goes_round(peer, bytes) && !peer->got_slots) {
        rf_shm_map_pages(peer->in->units, sizeof(peer->in->units), false);
        peer->got_slots = true;
    }
    return peer->in->units[unit];
}

static int take_piece(struct rf_shm *h, int rank, const struct rf_shm_line *line)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    struct rf_shm_node *recv = peer->recvs[line->what.ticket];
    if (!recv || !is_slot(&line->what) || line->what.bytes > recv->bytes - recv->moved)
        return fail_invalid(rank, "piece");
    const unsigned char *data = rf_shm_slot(peer, line->what.slot, line->what.bytes);
    bool whole = line->what.bytes == recv->bytes;
    if (whole && can_hold_slot(peer, recv)) {
        peer->recvs[line->what.ticket] = NULL;
        peer->held_slots++;
        complete_in_place(h, recv, data, line->what.ticket, line->what.slot);
        return 0;
    }
    rf_copy_bytes((unsigned char *)recv->buffer + recv->moved, data, line->what.bytes, recv->bytes);
    free_slot(peer, line->what.slot);
    recv->moved += line->what.bytes;
    if (recv->moved < recv->bytes)
        return 0;
    peer->recvs[line->what.ticket] = NULL;
    ack_done(peer, line->what.ticket);
    rf_shm_append(&h->done, recv);
    return 0;
}

/* ---- messages before their receives ---------------------------------------------------------- */

static int keep_early(struct rf_shm *h, int rank, const struct rf_shm_line *line,
                      const unsigned char *data)
{
    struct rf_shm_early *early = h->unused ? h->unused : rf_alloc(sizeof(*early));
    bool has_data = is_at_hand(line) && line->what.bytes > RF_SHM_INLINE;
    if (!early)
        return rf_fail(RF_ENOMEM, "shm: no memory for a message from rank %d", rank);
    h->unused = early == h->unused ? early->next : h->unused;
    early->data = has_data ? rf_alloc(line->what.bytes) : NULL;
    if (has_data && !early->data) {
        rf_free(early);
        return rf_fail(RF_ENOMEM, "shm: no memory for a message from rank %d", rank);
    }
    early->line = *line;
    early->line.what.kind = has_data ? RF_SHM_SHORT : line->what.kind; /* no longer in a slot */
    early->peer = rank;
    early->next = NULL;
    if (has_data)
        memcpy(early->data, data, line->what.bytes);
    struct rf_shm_early **link = &h->early[bucket_of(rank, line->tag)];
    while (*link)
        link = &(*link)->next;
    *link = early;
    return 0;
}

int rf_shm_post_recv(struct rf_shm *h, struct rf_shm_node *recv)
{
    unsigned bucket = bucket_of(recv->peer, recv->tag);
    for (struct rf_shm_early **link = &h->early[bucket]; *link; link = &(*link)->next) {
        struct rf_shm_early *early = *link;
        if (early->peer != recv->peer || early->line.tag != recv->tag)
            continue;
        *link = early->next;
        int rc = join(h, recv, &early->line, early->data);
        rf_free(early->data);
        early->data = NULL;
        early->next = h->unused;
        h->unused = early;
        return rc;
    }
    rf_shm_append(&h->recvs[bucket], recv);
    return 0;
}

static void free_all(struct rf_shm_early **list)
{
    while (*list) {
        struct rf_shm_early *early = *list;
        *list = early->next;
        rf_free(early->data);
        rf_free(early);
    }
}

void rf_shm_forget_early(struct rf_shm *h)
{
    for (int i = 0; i < RF_SHM_BUCKETS; i++)
        free_all(&h->early[i]);
    free_all(&h->unused);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int take_in(struct rf_shm *h, int rank, const struct rf_shm_line *line,
                   const unsigned char *cell)
{
    if (line->what.kind == 0 || line->what.kind >= RF_SHM_KINDS ||
        line->what.ticket >= RF_SHM_TICKETS ||
        (line->what.kind == RF_SHM_SHORT && line->what.bytes > RF_SHM_CELL))
        return fail_invalid(rank, "length or kind");
    if (line->what.kind == RF_SHM_PIECE)
        return take_piece(h, rank, line);
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    const bool is_eager = line->what.kind == RF_SHM_EAGER_ONE;
    if (is_eager && (!is_slot(&line->what) || line->what.bytes <= RF_SHM_CELL))
        return fail_invalid(rank, "slot");
    const unsigned char *data =
        is_eager ? rf_shm_slot(peer, line->what.slot, line->what.bytes) : cell;
    struct rf_shm_node *recv = find_recv(h, rank, line->tag);
    int rc = recv ? join(h, recv, line, data) : keep_early(h, rank, line, data);
    if (is_eager && !(recv && recv->in_place))
        free_slot(peer, line->what.slot);
    return rc;
}

/* The next line, if the peer has written it. */
static const struct rf_shm_line *next_line(const struct rf_shm_peer *peer)
{
    const struct rf_shm_line *line = &peer->in->lines[peer->received % RF_SHM_LINES];
    const uint32_t turn = (uint32_t)(peer->received / RF_SHM_LINES) + 1;
    return __atomic_load_n(&line->turn, __ATOMIC_ACQUIRE) == turn ? line : NULL;
}

static const unsigned char *cell_of(const struct rf_shm_peer *peer)
{
    return peer->in->cells[peer->received % RF_SHM_LINES];
}

static void pass_line(struct rf_shm_peer *peer)
{
    peer->received++;
    if (peer->received - peer->reported >= REPORT_EVERY) {
        peer->reported = peer->received;
        __atomic_store_n(&peer->acks_out->consumed, peer->received, __ATOMIC_RELEASE);
    }
}

int rf_shm_recv_at_once(struct rf_shm *h, int rank, uint64_t tag, void *buffer, size_t bytes,
                        struct rf_completion *out)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    const struct rf_shm_line *line = next_line(peer);
    if (!line || line->tag != tag)
        return 0;
    const struct rf_shm_what what = line->what;
    if (what.kind != RF_SHM_SHORT || what.bytes > RF_SHM_CELL || what.bytes > bytes)
        return 0;
    if (what.bytes > 0)
        memcpy(buffer, what.bytes > RF_SHM_INLINE ? cell_of(peer) : line->data, what.bytes);
    *out = (struct rf_completion){
        .bytes = what.bytes, .contract = line->contract, .peer = rank, .is_recv = true};
    pass_line(peer);
    return 1;
}

int rf_shm_receive(struct rf_shm *h, int rank)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    const struct rf_shm_line *line;
    while ((line = next_line(peer))) {
        const unsigned char *cell = cell_of(peer);
        __builtin_prefetch(cell);
        struct rf_shm_line copy;
        memcpy((char *)&copy + sizeof(copy.turn), (const char *)line + sizeof(copy.turn),
               sizeof(copy) - sizeof(copy.turn));
        copy.turn = 0;
        RETURN_IF_ERROR(take_in(h, rank, &copy, cell));
        pass_line(peer);
        if (h->done.first)
            return 0;
    }
    return 0;
}
