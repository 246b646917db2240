/* SPDX-License-Identifier: MIT
 *
 * The sending side of shm.c: records, tickets of long messages, pieces of staged ones. A peer's
 * acknowledgements are checked before they are used.
 */
#include "shm.h"

#include "base/base.h"

/* rf_posted.slot of a send with a ticket. */
enum { SEND_SHARED, SEND_ASKED, SEND_READABLE, SEND_STAGING };

static int fail_invalid(int rank, const char *what)
{
    return rf_fail_rank(RF_ECORRUPT, rank, "shm: what rank %d says of %s makes no sense", rank,
                        what);
}

/* ---- records --------------------------------------------------------------------------------- */

static bool needs_rest(uint64_t bytes)
{
    return bytes > RF_SHM_TINY && bytes <= RF_SHM_INLINE;
}

/* An inline message uses both records of a line, and may have to skip one first. A message in a
 * cell needs the cell's previous one to have been read. */
static bool fits(const struct rf_shm_peer *peer, int kind, uint64_t bytes)
{
    const uint64_t unread = peer->sent - peer->consumed;
    if (kind != RF_SHM_SHORT || bytes <= RF_SHM_TINY)
        return unread < RF_SHM_RECORDS;
    return bytes <= RF_SHM_INLINE ? unread + 3 <= RF_SHM_RECORDS : unread < peer->cells;
}

/* 1: the channel has capacity for the record of a message; 0: not now. */
static int has_record(struct rf_shm *h, int rank, int kind, uint64_t bytes)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    if (fits(peer, kind, bytes))
        return 1;
    uint64_t consumed = __atomic_load_n(&peer->acks_in->consumed, __ATOMIC_ACQUIRE);
    if (consumed < peer->consumed || consumed > peer->sent)
        return fail_invalid(rank, "what it has read");
    peer->consumed = consumed;
    return fits(peer, kind, bytes);
}

static struct rf_shm_record *next_record(struct rf_shm_peer *peer)
{
    return &peer->out->records[peer->sent % RF_SHM_RECORDS];
}

static uint32_t turn_of(const struct rf_shm_peer *peer)
{
    return (uint32_t)(peer->sent / RF_SHM_RECORDS) + 1;
}

static void publish(struct rf_shm_peer *peer, unsigned records)
{
    struct rf_shm_record *record = next_record(peer);
    const uint32_t turn = turn_of(peer);
    peer->sent += records;
    __atomic_store_n(&record->turn, turn, __ATOMIC_RELEASE);
}

/* Writes whole words: setting only some bits of a word would first read the others from the peer's
 * cache. */
static void write_record(struct rf_shm_record *record, uint64_t tag, uint32_t contract,
                         struct rf_shm_what what)
{
    record->contract = contract;
    record->tag = tag;
    record->what = what;
}

static void write_record_of(struct rf_shm_record *record, const struct rf_posted *send, int kind,
                            uint64_t bytes, unsigned slot)
{
    const struct rf_shm_what what = {.bytes = bytes & 0xfffffffffffull,
                                     .kind = (unsigned)kind & 0xfu,
                                     .slot = slot & 0xffu,
                                     .ticket = send->ticket};
    write_record(record, send->tag, send->contract, what);
}

/* Makes the next record begin a line. */
static void skip_to_line(struct rf_shm_peer *peer)
{
    if (peer->sent % 2 == 0)
        return;
    write_record(next_record(peer), 0, 0, (struct rf_shm_what){.kind = RF_SHM_SKIP});
    publish(peer, 1);
}

/* Writes all but the first bytes of an inline message, after its record. */
static void write_rest(struct rf_shm_peer *peer, const unsigned char *from, size_t bytes)
{
    struct rf_shm_record *rest = next_record(peer) + 1;
    __atomic_store_n(&rest->turn, turn_of(peer), __ATOMIC_RELAXED);
    memcpy((unsigned char *)rest + RF_SHM_REST, from, bytes);
}

static void write_cell(const struct rf_shm_peer *peer, const void *from, size_t bytes, bool stream)
{
    unsigned char *cell = peer->out->cells[peer->sent % peer->cells];
    if (!stream || bytes < RF_SHM_STREAM) {
        memcpy(cell, from, bytes);
        return;
    }
    rf_copy_past(cell, from, bytes);
    rf_copy_fence();
}

static void send_short(struct rf_shm *h, int rank, uint64_t tag, uint32_t contract,
                       const void *buffer, size_t bytes)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    const struct rf_shm_what what = {.bytes = bytes & 0xfffffffffffull, .kind = RF_SHM_SHORT};
    const bool has_rest = needs_rest(bytes);
    if (has_rest)
        skip_to_line(peer);
    struct rf_shm_record *record = next_record(peer);
    write_record(record, tag, contract, what);
    if (bytes > RF_SHM_INLINE)
        write_cell(peer, buffer, bytes, h->transport.streams);
    else if (bytes > 0)
        memcpy(record->data, buffer, bytes < RF_SHM_TINY ? bytes : RF_SHM_TINY);
    if (has_rest)
        write_rest(peer, (const unsigned char *)buffer + RF_SHM_TINY, bytes - RF_SHM_TINY);
    publish(peer, has_rest ? 2 : 1);
}

static void send_long(struct rf_shm *h, struct rf_posted *send)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, send->peer);
    struct rf_shm_record *record = next_record(peer);
    unsigned ticket = (unsigned)__builtin_ctzll(~peer->tickets);
    uint64_t bit = 1ull << ticket, offset = 0;
    bool shared = rf_shm_locate(&h->transport, send->buffer, send->bytes, &offset);
    bool readable = !shared && rf_shm_is_readable(h, send->buffer, send->bytes);
    send->ticket = (uint8_t)ticket;
    send->slot = shared ? SEND_SHARED : readable ? SEND_READABLE : SEND_ASKED;
    offset = readable ? (uintptr_t)send->buffer : offset;
    peer->sends[ticket] = send;
    peer->tickets |= bit;
    peer->done_bits ^= bit;
    if (!shared) {
        peer->asked |= bit;
        peer->go_bits ^= bit;
    }
    write_record_of(record, send,
                    shared     ? RF_SHM_SHARED
                    : readable ? RF_SHM_READABLE
                               : RF_SHM_STAGED,
                    send->bytes, 0);
    memcpy(record->data, &offset, sizeof(offset));
    publish(peer, 1);
}

/* ---- slots ------------------------------------------------------------------------------------
 *
 * Another core reads lines slowly from a core's private cache: at 7 GB/s if it shares the next
 * cache, at 2 GB/s if it does not. So slots, and cells, cycle through memory that exceeds the
 * private caches. Their lines have been evicted to the next cache when they are written again: an
 * all-reduce of 4 KiB on two ranks took 0.5 us instead of 0.8; 64 KiB in both directions at once
 * 3.5 instead of 9, 256 KiB 15 instead of 40. For a distant core they are written past the caches:
 * a broadcast of 4 KiB took 0.45 us instead of 2.0, 64 KiB 6.5 instead of 34, 256 KiB 24 instead of
 * 146. (AMD EPYC 9004, private caches of 1 MiB. shm_trial.c decides between the two.) With many
 * ranks, whose pairs together would need much memory, slots are reused at once, and there are fewer
 * cells. */

static unsigned units_of(size_t bytes)
{
    return (unsigned)((bytes + RF_SHM_UNIT - 1) / RF_SHM_UNIT);
}

static uint64_t run_of(unsigned first, unsigned units)
{
    return ((1ull << units) - 1) << first;
}

/* Frees the slots that the peer has given back. */
static void take_back_slots(struct rf_shm_peer *peer)
{
    const uint64_t bits = __atomic_load_n(&peer->acks_in->slots, __ATOMIC_ACQUIRE);
    uint64_t back = peer->slots_out & ~(bits ^ peer->slot_bits);
    peer->slots_out &= ~back;
    for (; back; back &= back - 1) {
        const unsigned first = (unsigned)__builtin_ctzll(back);
        peer->busy_units &= ~run_of(first, peer->slot_units[first]);
    }
}

/* The first free run at or after `from`, or else the first of all; -1: none. */
static int find_run(const struct rf_shm_peer *peer, unsigned units, unsigned from)
{
    uint64_t runs = ~peer->busy_units;
    for (unsigned i = 1; i < units; i++)
        runs &= ~peer->busy_units >> i;
    const uint64_t behind = from < RF_SHM_UNITS ? runs & ~0ull << from : 0;
    runs = behind ? behind : runs;
    return runs ? __builtin_ctzll(runs) : -1;
}

/* -1: not now. */
static int find_slot(struct rf_shm_peer *peer, size_t bytes)
{
    const unsigned units = units_of(bytes);
    if (peer->goes_round && peer->next_unit + units <= RF_SHM_UNITS &&
        !(peer->busy_units & run_of(peer->next_unit, units)))
        return (int)peer->next_unit;
    take_back_slots(peer);
    return find_run(peer, units, peer->goes_round ? peer->next_unit : 0);
}

void rf_shm_write_slot(struct rf_shm_peer *peer, unsigned unit, const void *from, size_t bytes,
                       bool stream)
{
    unsigned char *to = peer->out->units[unit];
    if (peer->goes_round && !peer->sent_slots) {
        rf_shm_map_pages(peer->out->units, sizeof(peer->out->units), true);
        peer->sent_slots = true;
    }
    if (!stream) {
        memcpy(to, from, bytes);
        return;
    }
    rf_copy_past(to, from, bytes);
    rf_copy_fence();
}

/* Sends the next `bytes` of a message in a slot. */
static void send_slot(struct rf_shm *h, struct rf_posted *send, int kind, unsigned slot,
                      size_t bytes)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, send->peer);
    const unsigned units = units_of(bytes);
    rf_shm_write_slot(peer, slot, (const unsigned char *)send->buffer + send->moved, bytes,
                      h->transport.streams);
    peer->slots_out |= 1ull << slot;
    peer->slot_bits ^= 1ull << slot;
    peer->slot_units[slot] = (uint8_t)units;
    peer->busy_units |= run_of(slot, units);
    if (peer->goes_round)
        peer->next_unit = slot + units;
    write_record_of(next_record(peer), send, kind, bytes, slot);
    publish(peer, 1);
    send->moved += bytes;
}

static bool is_eager(const struct rf_posted *send)
{
    return send->bytes > RF_SHM_CELL;
}

/* Whether an eager message can be sent, with its slot: 1, or 0: not now. */
static int has_capacity(struct rf_shm *h, const struct rf_posted *send, int *slot)
{
    int ready =
        has_record(h, send->peer, is_eager(send) ? RF_SHM_EAGER_ONE : RF_SHM_SHORT, send->bytes);
    if (ready <= 0 || !is_eager(send))
        return ready;
    *slot = find_slot(rf_shm_peer_of(h, send->peer), send->bytes);
    return *slot >= 0;
}

static void send_now(struct rf_shm *h, struct rf_posted *send, int slot)
{
    if (is_eager(send))
        send_slot(h, send, RF_SHM_EAGER_ONE, (unsigned)slot, send->bytes);
    else
        send_short(h, send->peer, send->tag, send->contract, send->buffer, send->bytes);
}

/* ---- progress of the peer -------------------------------------------------------------------- */

/* The peer copies one piece while the next is written, if it has its own core. Data that it reads
 * in its slot is sent as a whole, if it fits in one. */
static size_t piece_bytes(const struct rf_shm *h, const struct rf_shm_peer *peer,
                          const struct rf_posted *send)
{
    const uint64_t whole = __atomic_load_n(&peer->acks_in->whole, __ATOMIC_RELAXED);
    const uint64_t left = send->bytes - send->moved;
    uint64_t piece = send->bytes / RF_SHM_PIECES / RF_SHM_UNIT * RF_SHM_UNIT;
    piece = piece < RF_SHM_LEAST_PIECE ? RF_SHM_LEAST_PIECE : piece;
    if (piece > RF_SHM_SLOT || h->transport.yield || whole >> send->ticket & 1)
        piece = RF_SHM_SLOT;
    return (size_t)(left < piece ? left : piece);
}

/* Sends the next piece of a staged message, if there is a slot and a record for it. */
static int send_piece(struct rf_shm *h, int rank)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    struct rf_posted *send = peer->staging.first;
    const size_t bytes = piece_bytes(h, peer, send);
    int slot = find_slot(peer, bytes);
    int ready = slot >= 0 ? has_record(h, rank, RF_SHM_PIECE, bytes) : 0;
    if (ready <= 0)
        return ready;
    send_slot(h, send, RF_SHM_PIECE, (unsigned)slot, bytes);
    if (send->moved == send->bytes) {
        peer->sends[send->ticket] = NULL; /* the ticket stays in use until the peer is done */
        rf_posted_append(&h->done, rf_posted_take(&peer->staging));
    }
    return 0;
}

/* Checks the tickets that the peer has finished, and those whose pieces it requests. It writes
 * `done` before `go` if it needs no pieces: it has read the message itself, or refuses it. */
static int check_tickets(struct rf_shm *h, int rank)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    uint64_t go = ~(__atomic_load_n(&peer->acks_in->go, __ATOMIC_ACQUIRE) ^ peer->go_bits);
    uint64_t done = ~(__atomic_load_n(&peer->acks_in->done, __ATOMIC_ACQUIRE) ^ peer->done_bits);
    for (uint64_t ended = peer->tickets & done & go; ended; ended &= ended - 1) {
        struct rf_posted *send = peer->sends[__builtin_ctzll(ended)];
        if (!send)
            continue;
        if (send->slot == SEND_STAGING)
            return fail_invalid(rank, "a message that it has not yet got");
        peer->sends[send->ticket] = NULL;
        rf_posted_append(&h->done, send);
    }
    peer->asked &= ~(done & go);
    const uint64_t unreadable = __atomic_load_n(&peer->acks_in->unreadable, __ATOMIC_RELAXED);
    for (uint64_t wanted = peer->asked & go; wanted; wanted &= wanted - 1) {
        struct rf_posted *send = peer->sends[__builtin_ctzll(wanted)];
        if (send->slot == SEND_READABLE && unreadable >> send->ticket & 1)
            RETURN_IF_ERROR(rf_shm_check_send(h, send));
        send->slot = SEND_STAGING;
        send->moved = 0;
        rf_posted_append(&peer->staging, send);
    }
    peer->asked &= ~go;
    peer->tickets &= ~(done & go);
    return 0;
}

static int send_waiting(struct rf_shm *h, int rank)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    int ready, slot = 0;
    while (peer->waiting_now.first &&
           (ready = has_capacity(h, peer->waiting_now.first, &slot)) != 0) {
        if (ready < 0)
            return ready;
        send_now(h, peer->waiting_now.first, slot);
        rf_posted_append(&h->done, rf_posted_take(&peer->waiting_now));
    }
    while (peer->waiting_long.first && ~peer->tickets &&
           (ready = has_record(h, rank, RF_SHM_SHARED, 0)) != 0) {
        if (ready < 0)
            return ready;
        send_long(h, rf_posted_take(&peer->waiting_long));
    }
    return 0;
}

/* ---- interface for shm.c -----------------------------------------------------------------------
 */

static bool goes_at_once(struct rf_shm *h, const struct rf_posted *send)
{
    uint64_t offset;
    return send->bytes <= RF_SHM_EAGER ||
           (send->bytes <= RF_SHM_EAGER_PRIVATE &&
            !rf_shm_locate(&h->transport, send->buffer, send->bytes, &offset));
}

static int send_at_once(struct rf_shm *h, struct rf_posted *send)
{
    int slot = 0;
    if (rf_shm_peer_of(h, send->peer)->waiting_now.first || !goes_at_once(h, send))
        return 0;
    const int ready = has_capacity(h, send, &slot);
    if (ready > 0)
        send_now(h, send, slot);
    return ready;
}

int rf_shm_send_at_once(struct rf_shm *h, int rank, uint64_t tag, uint32_t contract,
                        const void *buffer, size_t bytes)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    if (bytes > RF_SHM_CELL) {
        struct rf_posted send = rf_posted_send(rank, tag, contract, buffer, bytes);
        return send_at_once(h, &send);
    }
    const int ready = peer->waiting_now.first ? 0 : has_record(h, rank, RF_SHM_SHORT, bytes);
    if (ready > 0)
        send_short(h, rank, tag, contract, buffer, bytes);
    return ready;
}

int rf_shm_post_send(struct rf_shm *h, struct rf_posted *send)
{
    struct rf_shm_peer *to = rf_shm_peer_of(h, send->peer);
    const int done = send_at_once(h, send);
    if (done < 0)
        return done;
    if (done > 0) {
        rf_posted_append(&h->done, send);
        return 0;
    }
    if (goes_at_once(h, send)) {
        rf_posted_append(&to->waiting_now, send);
        return 0;
    }
    const int ready = has_record(h, send->peer, RF_SHM_SHARED, 0);
    if (ready < 0)
        return ready;
    if (ready == 0 || to->waiting_long.first || !~to->tickets)
        rf_posted_append(&to->waiting_long, send);
    else
        send_long(h, send);
    return 0;
}

int rf_shm_send_on(struct rf_shm *h, int rank)
{
    struct rf_shm_peer *peer = rf_shm_peer_of(h, rank);
    if (peer->tickets)
        RETURN_IF_ERROR(check_tickets(h, rank));
    if (peer->staging.first)
        RETURN_IF_ERROR(send_piece(h, rank));
    if (peer->waiting_now.first || peer->waiting_long.first)
        RETURN_IF_ERROR(send_waiting(h, rank));
    return 0;
}
