/* SPDX-License-Identifier: MIT
 *
 * The receiving side of shm.c: matching, and moving the data to their destination. A record is read
 * once and then checked, because a faulty peer may change it at any time.
 */
#include "shm.h"

#include "base/base.h"

enum { PULL_BYTES = 4 << 20 };
#define NO_SLOT 0xff
#define NO_TICKET 0xff

static int fail_invalid(int rank, const char *what)
{
    return rf_fail_rank(RF_ECORRUPT, rank,
                        "shm: rank %d has written a message into the shared memory whose %s makes "
                        "no sense",
                        rank, what);
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

static void ack_done(struct rf_shm_peer *peer, unsigned ticket)
{
    peer->done ^= 1ull << ticket;
    __atomic_store_n(&peer->acks_out->done, peer->done, __ATOMIC_RELEASE);
}

/* Sets one bit of a word that the peer reads once it has seen `go`. */
static void set_bit(uint64_t *word, uint64_t *out, unsigned ticket, bool value)
{
    if (value == (*word >> ticket & 1))
        return;
    *word ^= 1ull << ticket;
    __atomic_store_n(out, *word, __ATOMIC_RELAXED);
}

static void ack_go(struct rf_shm_peer *peer, unsigned ticket, bool whole, bool unreadable)
{
    set_bit(&peer->whole, &peer->acks_out->whole, ticket, whole);
    set_bit(&peer->unreadable, &peer->acks_out->unreadable, ticket, unreadable);
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

static void complete_in_place(struct rf_shm *h, struct rf_posted *recv, const void *data,
                              unsigned ticket, unsigned slot)
{
    recv->buffer = (void *)(uintptr_t)data;
    recv->in_place = 1;
    recv->ticket = (uint8_t)ticket;
    recv->slot = (uint8_t)slot;
    rf_posted_append(&h->done, recv);
}

/* Whether all of its data arrived with its record. */
static bool is_at_hand(const struct rf_shm_head *head)
{
    return head->what.kind == RF_SHM_SHORT || head->what.kind == RF_SHM_EAGER_ONE;
}

/* Whether it arrives in pieces on request. */
static bool has_pieces(const struct rf_shm_head *head)
{
    return head->what.kind == RF_SHM_STAGED || head->what.kind == RF_SHM_READABLE;
}

static bool can_hold_slot(const struct rf_shm_peer *peer, const struct rf_posted *recv)
{
    return recv->zero_copy && peer->held_slots < RF_SHM_HELD_SLOTS;
}

static bool is_slot(const struct rf_shm_what *what)
{
    return what->slot < RF_SHM_UNITS && what->bytes > 0 && what->bytes <= RF_SHM_SLOT &&
           what->slot * (size_t)RF_SHM_UNIT + what->bytes <=
               sizeof(((struct rf_shm_channel *)0)->units);
}

/* The message is longer than the receive: nothing is copied. */
static int refuse(struct rf_shm *h, struct rf_posted *recv, const struct rf_shm_head *head)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, recv->peer);
    if (!is_at_hand(head))
        ack_done(peer, head->what.ticket);
    if (has_pieces(head))
        ack_go(peer, head->what.ticket, false, false);
    recv->status = RF_EMISMATCH;
    recv->moved = head->what.bytes;
    rf_posted_append(&h->done, recv);
    return 0;
}

/* Requests all pieces, even if a part of the message has been read. unreadable: the rest could not
 * be read. */
static int ask_for_pieces(struct rf_shm *h, struct rf_posted *recv, bool unreadable)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, recv->peer);
    if (peer->recvs[recv->ticket])
        return fail_invalid(recv->peer, "ticket");
    recv->moved = 0;
    peer->recvs[recv->ticket] = recv;
    /* A zero-copy message arrives as a whole. */
    ack_go(peer, recv->ticket, recv->zero_copy, unreadable);
    return 0;
}

/* If two ranks send to each other at once, each core writes slots and reads slots, and a read saves
 * one of the two. If only one of them sends, it writes the next slot while the other reads one, and
 * a read would save nothing. A sum that a core has just computed comes slowly from its cache: an
 * all-reduce of 256 KiB on two ranks, whose sums were read, took 62 us instead of 47. */
static bool is_worth_reading(const struct rf_shm *h, const struct rf_shm_peer *peer,
                             const struct rf_posted *recv)
{
    return peer->process > 0 && (h->reads == RF_SHM_READS_ALL || recv->exchange);
}

/* data: the data of a message that has arrived, if not inline. */
static int join(struct rf_shm *h, struct rf_posted *recv, const struct rf_shm_head *head,
                const unsigned char *data)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, recv->peer);
    recv->contract = head->contract;
    if (head->what.bytes > recv->bytes)
        return refuse(h, recv, head);
    recv->bytes = head->what.bytes;
    if (head->what.kind == RF_SHM_EAGER_ONE && can_hold_slot(peer, recv)) {
        peer->held_slots++;
        complete_in_place(h, recv, data, NO_TICKET, head->what.slot);
        return 0;
    }
    if (is_at_hand(head)) {
        if (head->what.bytes > 0)
            memcpy(recv->buffer, head->what.bytes > RF_SHM_INLINE ? data : head->data,
                   head->what.bytes);
        rf_posted_append(&h->done, recv);
        return 0;
    }
    uint64_t offset;
    memcpy(&offset, head->data, sizeof(offset));
    recv->ticket = head->what.ticket;
    if (head->what.kind == RF_SHM_READABLE && is_worth_reading(h, peer, recv)) {
        recv->from = (const unsigned char *)(uintptr_t)offset;
        recv->remote = 1;
        rf_posted_append(&h->pulls, recv);
        return 0;
    }
    if (has_pieces(head))
        return ask_for_pieces(h, recv, false);
    unsigned char *from = NULL;
    RETURN_IF_ERROR(rf_shm_reach(&h->transport, recv->peer, offset, head->what.bytes, &from));
    if (recv->zero_copy) {
        complete_in_place(h, recv, from, head->what.ticket, NO_SLOT);
        return 0;
    }
    recv->from = from;
    rf_posted_append(&h->pulls, recv);
    return 0;
}

int rf_shm_pull(struct rf_shm *h)
{
    struct rf_posted *recv = h->pulls.first;
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
        return ask_for_pieces(h, rf_posted_take(&h->pulls), true);
    RETURN_IF_ERROR(rc);
    recv->moved += bytes;
    if (recv->moved < recv->bytes)
        return 0;
    ack_done(peer, recv->ticket);
    if (recv->remote)
        ack_go(peer, recv->ticket, false, false);
    rf_posted_append(&h->done, rf_posted_take(&h->pulls));
    return 0;
}

const unsigned char *rf_shm_slot(struct rf_shm_peer *peer, unsigned unit, size_t bytes)
{
    if (peer->goes_round && !peer->got_slots) {
        rf_shm_map_pages(peer->in->units, sizeof(peer->in->units), false);
        peer->got_slots = true;
    }
    return peer->in->units[unit];
}

static int take_piece(struct rf_shm *h, int rank, const struct rf_shm_head *head)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    struct rf_posted *recv = peer->recvs[head->what.ticket];
    if (!recv || !is_slot(&head->what) || head->what.bytes > recv->bytes - recv->moved)
        return fail_invalid(rank, "piece");
    const unsigned char *data = rf_shm_slot(peer, head->what.slot, head->what.bytes);
    bool whole = head->what.bytes == recv->bytes;
    if (whole && can_hold_slot(peer, recv)) {
        peer->recvs[head->what.ticket] = NULL;
        peer->held_slots++;
        complete_in_place(h, recv, data, head->what.ticket, head->what.slot);
        return 0;
    }
    rf_copy_bytes((unsigned char *)recv->buffer + recv->moved, data, head->what.bytes, recv->bytes);
    free_slot(peer, head->what.slot);
    recv->moved += head->what.bytes;
    if (recv->moved < recv->bytes)
        return 0;
    peer->recvs[head->what.ticket] = NULL;
    ack_done(peer, head->what.ticket);
    rf_posted_append(&h->done, recv);
    return 0;
}

/* ---- messages before their receives ---------------------------------------------------------- */

static int keep_early(struct rf_shm *h, int rank, const struct rf_shm_head *head,
                      const unsigned char *data)
{
    struct rf_shm_early *early = h->unused ? h->unused : rf_alloc(sizeof(*early));
    bool has_data = is_at_hand(head) && head->what.bytes > RF_SHM_INLINE;
    if (!early)
        return rf_fail(RF_ENOMEM, "shm: no memory for a message from rank %d", rank);
    h->unused = early == h->unused ? early->next : h->unused;
    early->data = has_data ? rf_alloc(head->what.bytes) : NULL;
    if (has_data && !early->data) {
        rf_free(early);
        return rf_fail(RF_ENOMEM, "shm: no memory for a message from rank %d", rank);
    }
    early->head = *head;
    early->head.what.kind = has_data ? RF_SHM_SHORT : head->what.kind; /* no longer in a slot */
    early->peer = rank;
    early->next = NULL;
    if (has_data)
        memcpy(early->data, data, head->what.bytes);
    struct rf_shm_early **link = &h->early[rf_match_bucket(rank, head->tag)];
    while (*link)
        link = &(*link)->next;
    *link = early;
    return 0;
}

int rf_shm_post_recv(struct rf_shm *h, struct rf_posted *recv)
{
    unsigned bucket = rf_match_bucket(recv->peer, recv->tag);
    for (struct rf_shm_early **link = &h->early[bucket]; *link; link = &(*link)->next) {
        struct rf_shm_early *early = *link;
        if (early->peer != recv->peer || early->head.tag != recv->tag)
            continue;
        *link = early->next;
        int rc = join(h, recv, &early->head, early->data);
        rf_free(early->data);
        early->data = NULL;
        early->next = h->unused;
        h->unused = early;
        return rc;
    }
    rf_posted_append(&h->recvs[bucket], recv);
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
    for (int i = 0; i < RF_MATCH_BUCKETS; i++)
        free_all(&h->early[i]);
    free_all(&h->unused);
}

/* ---- records --------------------------------------------------------------------------------- */

static void pass(struct rf_shm_peer *peer, unsigned records)
{
    peer->received += records;
    if (peer->received - peer->reported >= peer->cells / 4) {
        peer->reported = peer->received;
        __atomic_store_n(&peer->acks_out->consumed, peer->received, __ATOMIC_RELEASE);
    }
}

static const struct rf_shm_record *record_of(const struct rf_shm_peer *peer)
{
    const struct rf_shm_record *record = &peer->in->records[peer->received % RF_SHM_RECORDS];
    const uint32_t turn = (uint32_t)(peer->received / RF_SHM_RECORDS) + 1;
    return __atomic_load_n(&record->turn, __ATOMIC_ACQUIRE) == turn ? record : NULL;
}

/* The next record of a message, if the peer has written it. */
static const struct rf_shm_record *next_record(struct rf_shm_peer *peer)
{
    const struct rf_shm_record *record = record_of(peer);
    if (record && record->what.kind == RF_SHM_SKIP && peer->received % 2) {
        pass(peer, 1);
        record = record_of(peer);
    }
    return record;
}

static const unsigned char *cell_of(const struct rf_shm_peer *peer)
{
    return peer->in->cells[peer->received % peer->cells];
}

/* The number of records of a message. A message with two begins a line, or it is invalid. */
static unsigned records_of(const struct rf_shm_peer *peer, const struct rf_shm_what *what)
{
    const bool has_rest =
        what->kind == RF_SHM_SHORT && what->bytes > RF_SHM_TINY && what->bytes <= RF_SHM_INLINE;
    return has_rest && peer->received % 2 == 0 ? 2 : 1;
}

/* Copies the inline data of a short message. */
static void copy_inline(const struct rf_shm_record *record, unsigned records, size_t bytes,
                        unsigned char *to)
{
    if (bytes == 0 || bytes > RF_SHM_INLINE)
        return;
    memcpy(to, record->data, bytes < RF_SHM_TINY ? bytes : RF_SHM_TINY);
    if (records == 2)
        memcpy(to + RF_SHM_TINY, (const unsigned char *)(record + 1) + RF_SHM_REST,
               bytes - RF_SHM_TINY);
}

static int take_in(struct rf_shm *h, int rank, const struct rf_shm_head *head,
                   const unsigned char *cell)
{
    if (head->what.kind == RF_SHM_PIECE)
        return take_piece(h, rank, head);
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    const bool is_eager = head->what.kind == RF_SHM_EAGER_ONE;
    if (is_eager && (!is_slot(&head->what) || head->what.bytes <= RF_SHM_CELL))
        return fail_invalid(rank, "slot");
    const unsigned char *data =
        is_eager ? rf_shm_slot(peer, head->what.slot, head->what.bytes) : cell;
    struct rf_posted *recv =
        rf_posted_match(&h->recvs[rf_match_bucket(rank, head->tag)], rank, head->tag);
    int rc = recv ? join(h, recv, head, data) : keep_early(h, rank, head, data);
    if (is_eager && !(recv && recv->in_place))
        free_slot(peer, head->what.slot);
    return rc;
}

static bool is_valid(const struct rf_shm_what *what, unsigned records)
{
    if (what->kind == 0 || what->kind >= RF_SHM_SKIP || what->ticket >= RF_SHM_TICKETS)
        return false;
    return what->kind != RF_SHM_SHORT || what->bytes <= RF_SHM_TINY ||
           (what->bytes <= RF_SHM_INLINE ? records == 2 : what->bytes <= RF_SHM_CELL);
}

int rf_shm_recv_at_once(struct rf_shm *h, int rank, uint64_t tag, void *buffer, size_t bytes,
                        struct rf_completion *out)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    const struct rf_shm_record *record = next_record(peer);
    if (!record || record->tag != tag)
        return 0;
    const struct rf_shm_what what = record->what;
    const unsigned records = records_of(peer, &what);
    if (what.kind != RF_SHM_SHORT || !is_valid(&what, records) || what.bytes > bytes)
        return 0;
    if (what.bytes > RF_SHM_INLINE)
        memcpy(buffer, cell_of(peer), what.bytes);
    else
        copy_inline(record, records, what.bytes, buffer);
    *out = (struct rf_completion){
        .bytes = what.bytes, .contract = record->contract, .peer = rank, .is_recv = true};
    pass(peer, records);
    return 1;
}

int rf_shm_receive(struct rf_shm *h, int rank)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    const struct rf_shm_record *record;
    while ((record = next_record(peer))) {
        const unsigned char *cell = cell_of(peer);
        __builtin_prefetch(cell);
        struct rf_shm_head head = {
            .contract = record->contract, .tag = record->tag, .what = record->what};
        const unsigned records = records_of(peer, &head.what);
        if (!is_valid(&head.what, records))
            return fail_invalid(rank, "length or kind");
        if (head.what.kind == RF_SHM_SHORT)
            copy_inline(record, records, head.what.bytes, head.data);
        else
            memcpy(head.data, record->data, RF_SHM_TINY);
        RETURN_IF_ERROR(take_in(h, rank, &head, cell));
        pass(peer, records);
        if (h->done.first)
            return 0;
    }
    return 0;
}
