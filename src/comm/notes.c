/* SPDX-License-Identifier: MIT
 *
 * What communicators say to each other over the control link, and what is made of it: "I wait in
 * this operation", "for whom do you wait?" (ask.c), "this communicator has failed, because", "I
 * leave". Also deaths and aborts, which the link itself reports.
 */
#include "communicator.h"

enum note_kind {
    NOTE_WAITING = 0x7266634e,
    NOTE_VERDICT,
    NOTE_LEAVING,
    NOTE_HISTORY,
    NOTE_LEFT_OUT,
    NOTE_PROBE,
    NOTE_CIRCLE,
    NOTE_WAITED,
    NOTE_ASK,
    NOTE_TELL
};
enum { NOTE_PASTS = 6, NOTE_RANKS = 96 };

struct note {
    uint32_t kind;
    int32_t asked;    /* NOTE_WAITING: this rank is to say what it called; -1 = nobody */
    uint64_t started; /* collectives that the sender has started */
    union {
        struct {
            uint32_t chain, hash;
            uint64_t count;
            int32_t root;
            uint8_t op, dtype, redop, order, algorithm;
        } last;                    /* NOTE_LEAVING: as rf_peer_state has it */
        struct rf_probe probe;     /* NOTE_PROBE, NOTE_CIRCLE */
        struct rf_past past;       /* NOTE_WAITING */
        struct rf_verdict verdict; /* NOTE_VERDICT */
        struct {
            uint32_t count, last;
            struct rf_past past[NOTE_PASTS]; /* oldest first; last: there is nothing older */
        } history;                           /* NOTE_HISTORY */
        struct {
            uint32_t count;
            int32_t rank[NOTE_RANKS];
        } left_out; /* NOTE_LEFT_OUT */
        struct {
            uint32_t count;
            int32_t rank[RF_TELL_RANKS]; /* of the communicator; NOTE_TELL: of the job */
        } ranks;                         /* NOTE_ASK, NOTE_TELL: who is to say for whom it waits,
                                          * for whom the sender does */
    };
};
_Static_assert(sizeof(struct note) <= sizeof(((struct rf_event *)0)->payload),
               "one control message");

/* Notes of which every rank sends one when all is well, to all others, are short. */
static size_t note_bytes(const struct note *note)
{
    return note->kind == NOTE_LEAVING ? offsetof(struct note, last) + sizeof(note->last)
                                      : sizeof(*note);
}

/* A note that cannot be sent is not worth another error: the link reports its own death. */
static void send_note(struct rf_comm *comm, const struct note *note)
{
    if (comm->size > 1 && comm->control->ops->notify(comm->control, note, note_bytes(note)) < 0)
        rf_log("comm", 2, "could not tell the other ranks: %s", rf_last_error()->message);
}

void rf_note_waiting(struct rf_comm *comm, const struct rf_contract *mine, int asked)
{
    const struct rf_past *own =
        rf_contract_is_point(mine) ? NULL : rf_comm_history(comm, mine->sequence);
    struct note note = {.kind = NOTE_WAITING,
                        .asked = asked,
                        .started = comm->sequence + rf_async_queued(comm->async),
                        .past = own ? *own : (struct rf_past){.contract = *mine}};
    send_note(comm, &note);
}

void rf_note_verdict(struct rf_comm *comm, const struct rf_verdict *verdict)
{
    struct note note = {.kind = NOTE_VERDICT, .asked = -1, .verdict = *verdict};
    send_note(comm, &note);
}

void rf_note_waited(struct rf_comm *comm)
{
    struct note note = {.kind = NOTE_WAITED, .asked = -1};
    send_note(comm, &note);
}

static void note_ranks(struct rf_comm *comm, enum note_kind kind, const int *ranks, int count)
{
    struct note note = {.kind = kind, .asked = -1};
    for (int i = 0; i < count && i < RF_TELL_RANKS; i++)
        note.ranks.rank[note.ranks.count++] = ranks[i];
    send_note(comm, &note);
}

void rf_note_ask(struct rf_comm *comm, const int *ranks, int count)
{
    note_ranks(comm, NOTE_ASK, ranks, count);
}

void rf_note_tell(struct rf_comm *comm, const int *in_job, int count)
{
    note_ranks(comm, NOTE_TELL, in_job, count);
}

void rf_note_overhear(void *listener, const void *payload, size_t bytes)
{
    struct rf_comm *comm = listener;
    struct note note = {.kind = 0};
    if (bytes != sizeof(note))
        return;
    memcpy(&note.kind, payload, sizeof(note.kind));
    if (note.kind != NOTE_ASK)
        return;
    memcpy(&note, payload, sizeof(note));
    for (uint32_t i = 0; i < note.ranks.count && i < RF_TELL_RANKS; i++)
        if (note.ranks.rank[i] == comm->rank)
            atomic_store(&comm->asked_at, atomic_fetch_add(&comm->family->asks, 1) + 1);
}

static void note_leaving(struct rf_comm *comm)
{
    struct note note = {.kind = NOTE_LEAVING, .asked = -1, .started = comm->sequence};
    const struct rf_past *past =
        comm->sequence > 0 ? rf_comm_history(comm, comm->sequence - 1) : NULL;
    const struct rf_contract *last = past ? &past->contract : NULL;
    if (comm->point.op != RF_COLL_NONE && comm->point_after == comm->sequence)
        last = &comm->point;
    note.last.chain = past ? past->chain : 0;
    note.last.hash = past ? past->hash : 0;
    if (last) {
        note.last.count = last->count;
        note.last.root = last->root;
        note.last.op = last->op;
        note.last.dtype = last->dtype;
        note.last.redop = last->redop;
        note.last.order = last->order;
        note.last.algorithm = last->algorithm;
    }
    send_note(comm, &note);
}

void rf_note_left_out(struct rf_comm *comm, const int *members, int count)
{
    struct note note = {.kind = NOTE_LEFT_OUT, .asked = -1};
    for (int r = 0, next = 0; r < comm->size; r++) {
        if (next < count && members[next] == r)
            next++;
        else if (note.left_out.count < NOTE_RANKS)
            note.left_out.rank[note.left_out.count++] = r;
    }
    if (note.left_out.count > 0)
        send_note(comm, &note);
}

/* All that this rank remembers, the latest first: so a recent difference is found at once. */
static void tell_history(struct rf_comm *comm)
{
    if (comm->told_history)
        return;
    comm->told_history = true;
    uint64_t oldest = comm->sequence > RF_HISTORY ? comm->sequence - RF_HISTORY : 0;
    for (uint64_t end = comm->sequence; end > oldest;) {
        uint64_t begin = end - oldest > NOTE_PASTS ? end - NOTE_PASTS : oldest;
        struct note note = {.kind = NOTE_HISTORY, .asked = -1, .started = comm->sequence};
        note.history.last = begin == oldest;
        for (uint64_t i = begin; i < end; i++)
            note.history.past[note.history.count++] = comm->history[i % RF_HISTORY];
        send_note(comm, &note);
        end = begin;
    }
}

const struct rf_past *rf_comm_history(const struct rf_comm *comm, uint64_t sequence)
{
    bool known = sequence < comm->sequence && comm->sequence - sequence <= RF_HISTORY;
    return known ? &comm->history[sequence % RF_HISTORY] : NULL;
}

void rf_note_probe(struct rf_comm *comm, const struct rf_probe *probe, bool found)
{
    struct note note = {.kind = found ? NOTE_CIRCLE : NOTE_PROBE, .asked = -1, .probe = *probe};
    send_note(comm, &note);
}

bool rf_call_needs_everybody(const struct rf_contract *contract)
{
    if (contract->op == RF_COLL_BARRIER)
        return true;
    /* A rank may have no leaves, and a count of 0. */
    if (contract->op == RF_COLL_FOREST_REDUCE_SCATTER ||
        contract->op == RF_COLL_PREFIX_REDUCE_SCATTER)
        return false;
    return contract->op != RF_COLL_BROADCAST && contract->count > 0;
}

/* The peer waits in a send or receive for this rank, which is in a collective that the peer has not
 * begun and must take part in: neither can ever go on. */
static int check_point(struct rf_comm *comm, int rank, const struct rf_contract *mine,
                       const struct rf_exec *exec)
{
    const struct rf_peer_state *peer = &comm->peers[rank];
    if (!peer->has_point || peer->point.root != comm->rank ||
        (!rf_call_needs_everybody(mine) && !(exec && rf_exec_needs(exec, rank))) ||
        mine->sequence < peer->point_started || rf_p2p_has_served(comm->p2p, rank, &peer->point))
        return 0;
    return rf_comm_fail_mismatch(comm, comm->rank, mine, rank, &peer->point);
}

int rf_comm_check_points(struct rf_comm *comm, const struct rf_contract *mine,
                         const struct rf_exec *exec)
{
    for (int rank = 0; rank < comm->size; rank++)
        RETURN_IF_ERROR(check_point(comm, rank, mine, exec));
    return 0;
}

/* Both ranks have come to this operation. */
static int compare(struct rf_comm *comm, const struct rf_past *own, int rank,
                   const struct rf_past *theirs)
{
    if (own->chain != theirs->chain) {
        /* They disagreed earlier: which call that was is found by whoever hears of it. */
        comm->peers[rank].differs = true;
        tell_history(comm);
        return 0;
    }
    if (rf_past_equal(own, theirs))
        return 0;
    return rf_comm_fail_mismatch(comm, comm->rank, &own->contract, rank, &theirs->contract);
}

static int heard_waiting(struct rf_comm *comm, int rank, const struct note *note)
{
    struct rf_peer_state *peer = &comm->peers[rank];
    if (rf_contract_is_point(&note->past.contract)) {
        peer->point = note->past.contract;
        peer->point_started = note->started;
        peer->has_point = true;
        return comm->running ? check_point(comm, rank, comm->running, NULL) : 0;
    }
    peer->waiting = note->past;
    peer->has_waiting = true;
    const struct rf_past *own = rf_comm_history(comm, note->past.contract.sequence);
    if (!own) {
        comm->announcements += note->past.contract.sequence >= comm->sequence;
        return 0;
    }
    RETURN_IF_ERROR(compare(comm, own, rank, &note->past));
    if (note->asked == comm->rank)
        rf_note_waiting(comm, &own->contract, -1);
    return 0;
}

int rf_comm_compare_announced(struct rf_comm *comm, const struct rf_past *mine)
{
    comm->announcements = 0;
    for (int rank = 0; rank < comm->size; rank++) {
        const struct rf_peer_state *peer = &comm->peers[rank];
        if (!peer->has_waiting)
            continue;
        if (peer->waiting.contract.sequence == mine->contract.sequence)
            RETURN_IF_ERROR(compare(comm, mine, rank, &peer->waiting));
        comm->announcements += peer->waiting.contract.sequence > mine->contract.sequence;
    }
    return 0;
}

/* A rank with another past tells all of it. The first difference is where the chains still agree
 * and the calls do not. */
static int heard_history(struct rf_comm *comm, int rank, const struct note *note)
{
    struct rf_peer_state *peer = &comm->peers[rank];
    uint32_t count = note->history.count < NOTE_PASTS ? note->history.count : NOTE_PASTS;
    for (uint32_t i = 0; i < count; i++) {
        const struct rf_past *theirs = &note->history.past[i];
        const struct rf_past *own = rf_comm_history(comm, theirs->contract.sequence);
        if (!own)
            continue;
        if (own->chain != theirs->chain)
            peer->has_other_past = true;
        else if (!rf_past_equal(own, theirs))
            return rf_comm_fail_mismatch(comm, comm->rank, &own->contract, rank, &theirs->contract);
    }
    if (!note->history.last || !peer->has_other_past)
        return 0;
    uint64_t oldest = comm->sequence > RF_HISTORY ? comm->sequence - RF_HISTORY : 0;
    return rf_comm_fail_text(comm, RF_EMISMATCH, rank, NULL,
                             "rank %d and rank %d called different things before operation %llu of "
                             "this communicator, too long ago to say which; every rank must make "
                             "the same calls in the same order",
                             comm->rank, rank, (unsigned long long)oldest);
}

/* ---- leaving --------------------------------------------------------------------------------- */

int rf_comm_compare_leaver(struct rf_comm *comm, int rank)
{
    struct rf_peer_state *peer = &comm->peers[rank];
    const struct rf_past *last = &peer->last;
    const struct rf_past *own =
        peer->left_after > 0 ? rf_comm_history(comm, peer->left_after - 1) : NULL;
    if (!own)
        return 0; /* it called none, or more than this rank so far */
    if (!rf_contract_is_point(&last->contract))
        return compare(comm, own, rank, last);
    if (own->chain != last->chain || own->hash != last->hash) {
        peer->differs = true;
        tell_history(comm);
    }
    return 0;
}

/* Both leave, so nothing will follow in which they could differ. */
static int compare_last(struct rf_comm *comm, int rank)
{
    struct rf_peer_state *peer = &comm->peers[rank];
    RETURN_IF_ERROR(rf_comm_compare_leaver(comm, rank));
    if (peer->differs)
        return 0;
    const struct rf_past *own = rf_comm_history(comm, peer->left_after);
    if (peer->left_after > comm->sequence)
        comm->missed = rank;
    if (!own)
        return 0;
    struct rf_contract theirs = {.sequence = peer->left_after, .root = RF_ROOT_LEFT};
    if (rf_contract_is_point(&peer->last.contract))
        theirs = peer->last.contract;
    return rf_comm_fail_mismatch(comm, comm->rank, &own->contract, rank, &theirs);
}

static int heard_leaving(struct rf_comm *comm, int rank, const struct note *note)
{
    struct rf_peer_state *peer = &comm->peers[rank];
    peer->has_left = true;
    peer->left_after = note->started;
    peer->last = (struct rf_past){.chain = note->last.chain, .hash = note->last.hash};
    peer->last.contract =
        (struct rf_contract){.sequence = note->started > 0 ? note->started - 1 : 0,
                             .count = note->last.count,
                             .op = note->last.op,
                             .dtype = note->last.dtype,
                             .redop = note->last.redop,
                             .order = note->last.order,
                             .root = note->last.root,
                             .algorithm = note->last.algorithm};
    return comm->leaving ? compare_last(comm, rank) : 0;
}

int rf_comm_begin_leaving(struct rf_comm *comm)
{
    RETURN_IF_ERROR(rf_comm_events(comm));
    comm->leaving = true;
    comm->missed = -1;
    note_leaving(comm);
    for (int rank = 0; rank < comm->size; rank++)
        if (comm->peers[rank].has_left)
            RETURN_IF_ERROR(compare_last(comm, rank));
    return 0;
}

int rf_comm_end_leaving(struct rf_comm *comm)
{
    int rank = comm->missed;
    for (int r = 0; r < comm->size && rank < 0; r++)
        rank = comm->peers[r].differs ? r : -1;
    if (rank < 0)
        return 0;
    if (rf_comm_told_within(comm, RF_ASK_NS))
        return rf_fail_error(&comm->error);
    return rf_comm_fail_leaver(comm, rank);
}

int rf_comm_fail_leaver(struct rf_comm *comm, int rank)
{
    char text[160];
    const struct rf_peer_state *peer = &comm->peers[rank];
    return rf_comm_fail_text(
        comm, RF_EMISMATCH, rank, NULL,
        "rank %d left after %llu operations, the last thing that it called being %s; by then it "
        "and "
        "rank %d, which has come to %llu, had called different things; every rank must make the "
        "same calls in the same order",
        rank, (unsigned long long)peer->left_after,
        rf_contract_text(&peer->last.contract, text, 90), comm->rank,
        (unsigned long long)comm->sequence);
}

static void heard_left_out(struct rf_comm *comm, const struct note *note)
{
    uint32_t count = note->left_out.count < NOTE_RANKS ? note->left_out.count : NOTE_RANKS;
    for (uint32_t i = 0; i < count; i++)
        comm->left_out = comm->left_out || note->left_out.rank[i] == comm->rank;
}

static int heard_note(struct rf_comm *comm, const struct rf_event *event)
{
    struct note note = {.kind = 0};
    if (event->bytes < offsetof(struct note, past) || event->bytes > sizeof(note) ||
        event->rank < 0 || event->rank >= comm->size)
        return 0; /* not from a communicator of this version */
    memcpy(&note, event->payload, event->bytes);
    if (event->bytes != note_bytes(&note))
        return 0;
    if (note.kind == NOTE_WAITING)
        return heard_waiting(comm, event->rank, &note);
    if (note.kind == NOTE_HISTORY)
        return heard_history(comm, event->rank, &note);
    if (note.kind == NOTE_PROBE || note.kind == NOTE_CIRCLE)
        return rf_cycle_heard(comm, event->rank, &note.probe, note.kind == NOTE_CIRCLE);
    if (note.kind == NOTE_LEFT_OUT)
        heard_left_out(comm, &note);
    if (note.kind == NOTE_TELL)
        rf_ask_told(comm, event->rank, note.ranks.rank,
                    note.ranks.count < RF_TELL_RANKS ? note.ranks.count : RF_TELL_RANKS);
    if (note.kind == NOTE_WAITED)
        comm->peers[event->rank].waited = true;
    if (note.kind == NOTE_VERDICT) {
        note.verdict.message[RF_VERDICT_TEXT - 1] = 0;
        return rf_comm_fail(comm, &note.verdict, false);
    }
    return note.kind == NOTE_LEAVING ? heard_leaving(comm, event->rank, &note) : 0;
}

/* The control link tells every rank by itself, so this verdict is not sent on. */
static int fail_as_told(struct rf_comm *comm, int status, int rank, const char *what,
                        const char *text)
{
    struct rf_verdict verdict = {.status = status,
                                 .rank = rank,
                                 .rank_a = -1,
                                 .rank_b = -1,
                                 .sequence = comm->sequence > 0 ? comm->sequence - 1 : 0};
    snprintf(verdict.message, sizeof(verdict.message), "rank %d %s: %.200s", rank, what, text);
    return rf_comm_fail(comm, &verdict, false);
}

int rf_comm_heard(struct rf_comm *comm, const struct rf_event *event)
{
    switch (event->kind) {
    case RF_EVENT_MESSAGE:
        return heard_note(comm, event);
    case RF_EVENT_DEAD:
        return fail_as_told(comm, RF_EPEER, event->rank, "died or left without a word",
                            event->text);
    case RF_EVENT_ABORT:
        return fail_as_told(comm, RF_EABORT, event->rank, "aborted the communicator", event->text);
    default:
        return 0; /* RF_EVENT_LEFT: what matters was in the leaver's own note */
    }
}

int rf_comm_events(struct rf_comm *comm)
{
    if (comm->failed)
        return rf_fail_error(&comm->error);
    if (atomic_load_explicit(&comm->abort_requested, memory_order_acquire)) {
        comm->control->ops->abort(comm->control, comm->abort_reason);
        return fail_as_told(comm, RF_EABORT, comm->rank, "aborted the communicator",
                            comm->abort_reason);
    }
    struct rf_event event;
    while (comm->control->ops->next_event(comm->control, &event) == 1) {
        int rc = rf_comm_heard(comm, &event);
        if (rc < 0)
            return rc;
    }
    return 0;
}
