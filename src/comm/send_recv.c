/* SPDX-License-Identifier: MIT
 *
 * rf_send, rf_recv, rf_sendrecv: checks, and a state machine for each half, advanced in one loop
 * until both have ended, so that two ranks may exchange long messages without a deadlock.
 */
#include <ringforge/ringforge.h>

#include "point_to_point.h"

enum state { START, WAIT, LAST, DONE };

struct half {
    enum state state;
    int peer;
    uint32_t tag;
    bool posted; /* the receive of a long message */
    uint64_t id;
    void *buffer;
    size_t bytes;
    struct rf_contract contract;
};

static bool is_short(const struct half *half)
{
    return half->bytes <= RF_P2P_SHORT;
}

/* 1: the posted operation has ended; 0: not yet. */
static int ended(struct rf_p2p *p2p, enum rf_p2p_use use)
{
    const struct rf_p2p_context *context = rf_p2p_context(p2p, use);
    if (context->in_flight)
        return 0;
    return context->status < 0 ? context->status : 1;
}

static int again(int status)
{
    return status == RF_EAGAIN ? 0 : status;
}

/* START: the envelope; WAIT (long): until the peer asks; LAST: until everything posted has ended.
 */
static int advance_send(struct rf_p2p *p2p, struct half *half)
{
    if (half->state == START) {
        struct rf_envelope *envelope = (struct rf_envelope *)p2p->outgoing;
        size_t data = is_short(half) ? half->bytes : 0;
        half->id = p2p->peers[half->peer].sent;
        half->contract.sequence = half->id;
        *envelope =
            (struct rf_envelope){.kind = is_short(half) ? RF_ENVELOPE_DATA : RF_ENVELOPE_ANNOUNCE,
                                 .tag = half->tag,
                                 .id = half->id,
                                 .contract = half->contract};
        if (data > 0)
            memcpy(envelope + 1, half->buffer, data);
        int rc = rf_p2p_send_envelope(p2p, half->peer, envelope, sizeof(*envelope) + data,
                                      RF_USE_ENVELOPE);
        if (rc < 0)
            return again(rc);
        half->state = is_short(half) ? LAST : WAIT;
    }
    if (half->state == WAIT) {
        if (p2p->peers[half->peer].asked != half->id + 1)
            return 0;
        int rc = rf_p2p_send_data(p2p, half->peer, half->id, half->buffer, half->bytes);
        if (rc < 0)
            return again(rc);
        half->state = LAST;
    }
    int envelope = ended(p2p, RF_USE_ENVELOPE);
    int data = is_short(half) ? 1 : ended(p2p, RF_USE_DATA);
    if (envelope < 0 || data < 0)
        return envelope < 0 ? envelope : data;
    if (envelope && data)
        half->state = DONE;
    return 0;
}

static int matched(struct rf_p2p *p2p, struct half *half, struct rf_taken *taken)
{
    half->id = taken->envelope.id;
    half->contract.sequence = half->id;
    struct rf_contract theirs = taken->envelope.contract;
    if (!rf_contract_equal(&half->contract, &theirs)) {
        rf_free(taken);
        return rf_comm_fail_mismatch(p2p->comm, p2p->comm->rank, &half->contract, half->peer,
                                     &theirs);
    }
    bool has_data = taken->envelope.kind == RF_ENVELOPE_DATA;
    int rc = 0;
    if (has_data && taken->bytes != half->bytes)
        rc = rf_fail_rank(RF_ECORRUPT, half->peer,
                          "a message from rank %d has %zu bytes instead of %zu", half->peer,
                          taken->bytes, half->bytes);
    else if (has_data && half->bytes > 0)
        memcpy(half->buffer, taken + 1, half->bytes);
    rf_free(taken);
    half->state = has_data ? DONE : WAIT;
    return rc;
}

/* START: until the envelope is there; WAIT (long): post the receive, then ask; LAST: until both
 * have ended. */
static int advance_recv(struct rf_p2p *p2p, struct half *half)
{
    if (half->state == START) {
        struct rf_taken *taken = rf_p2p_take(p2p, half->peer, half->tag);
        if (!taken) {
            half->contract.sequence = p2p->peers[half->peer].taken; /* the envelope waited for */
            const struct rf_p2p_context *slot = &p2p->contexts[half->peer];
            return slot->in_flight ? 0 : slot->status;
        }
        RETURN_IF_ERROR(matched(p2p, half, taken));
        if (half->state == DONE)
            return 0;
        p2p->ask = (struct rf_envelope){.kind = RF_ENVELOPE_ASK, .tag = half->tag, .id = half->id};
    }
    if (half->state == WAIT) {
        if (!half->posted) {
            int rc = rf_p2p_recv_data(p2p, half->peer, half->id, half->buffer, half->bytes);
            if (rc < 0)
                return again(rc);
            half->posted = true;
        }
        int rc = rf_p2p_send_envelope(p2p, half->peer, &p2p->ask, sizeof(p2p->ask), RF_USE_ASK);
        if (rc < 0)
            return again(rc);
        p2p->peers[half->peer].answered = half->id + 1;
        half->state = LAST;
    }
    int ask = ended(p2p, RF_USE_ASK), data = ended(p2p, RF_USE_RECV);
    if (ask < 0 || data < 0)
        return ask < 0 ? ask : data;
    if (ask && data)
        half->state = DONE;
    return 0;
}

static int waiting_for(struct rf_comm *comm)
{
    return comm->p2p->waiting_for;
}

/* Either half may be NULL. */
static int exchange(struct rf_comm *comm, struct half *send, struct half *recv, double timeout_s)
{
    struct rf_p2p *p2p = comm->p2p;
    struct rf_watch watch;
    uint64_t start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    rf_watch_begin(comm, &watch, recv ? &recv->contract : &send->contract, timeout_s, waiting_for);
    for (;;) {
        int rc = 0;
        if (send && send->state != DONE)
            rc = advance_send(p2p, send);
        if (rc == 0 && recv && recv->state != DONE)
            rc = advance_recv(p2p, recv);
        bool sent = !send || send->state == DONE, received = !recv || recv->state == DONE;
        const struct half *open = sent ? recv : send;
        if (rc == 0 && sent && received)
            break;
        if (rc == 0) {
            p2p->waiting_for = open->peer;
            watch.mine = &open->contract;
            rc = rf_p2p_poll(p2p);
        }
        if (rc == 0)
            rc = rf_watch_turn(comm, &watch, p2p->activity);
        if (rc < 0)
            return comm->failed ? rc : rf_comm_fail_operation(comm, rc, -1, &open->contract);
    }
    if (start_ns > 0)
        rf_comm_trace(comm, send ? RF_COLL_SEND : RF_COLL_RECV, send ? send->bytes : recv->bytes,
                      start_ns);
    return 0;
}

/* ---- checks and public calls ----------------------------------------------------------------- */

static int check(const struct rf_comm *comm, const char *name, const void *buffer, size_t count,
                 enum rf_dtype dtype, int peer, int tag, const struct rf_coll_opts *opts)
{
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", name);
    size_t element = rf_dtype_bytes(dtype);
    if (element == 0)
        return rf_fail(RF_EINVAL, "%s: unknown element type %d", name, (int)dtype);
    if (peer < 0 || peer >= comm->size)
        return rf_fail(RF_EINVAL, "%s: rank %d is outside the world of %d ranks", name, peer,
                       comm->size);
    if (tag < 0 || tag >= RF_P2P_TAGS)
        return rf_fail(RF_EINVAL, "%s: tag %d; tags are 0 to %d", name, tag, RF_P2P_TAGS - 1);
    if (count > (size_t)PTRDIFF_MAX / element)
        return rf_fail(RF_EINVAL, "%s: %zu elements are more than memory can hold", name, count);
    if (!buffer && count > 0)
        return rf_fail(RF_EINVAL, "%s: the buffer is NULL, but there are %zu elements", name,
                       count);
    if (opts && opts->request)
        return rf_fail(RF_EINVAL, "%s: requests are for collectives; leave opts->request NULL",
                       name);
    if (opts && opts->timeout_s < 0)
        return rf_fail(RF_EINVAL, "%s: a timeout of %g s is negative", name, opts->timeout_s);
    return 0;
}

static struct half half_of(enum rf_coll_op op, const void *buffer, size_t count,
                           enum rf_dtype dtype, int peer, int tag, const struct rf_coll_opts *opts)
{
    struct half half = {.peer = peer,
                        .tag = (uint32_t)tag,
                        .buffer = (void *)(uintptr_t)buffer,
                        .bytes = count * rf_dtype_bytes(dtype)};
    half.contract = (struct rf_contract){
        .count = count, .op = (uint8_t)op, .dtype = (uint8_t)dtype, .root = peer};
    rf_contract_label(&half.contract, opts ? opts->label : NULL);
    return half;
}

static int not_self(const struct rf_comm *comm, const char *name, int peer)
{
    if (peer == comm->rank)
        return rf_fail(RF_EINVAL, "%s: rank %d is this rank itself; rf_sendrecv can do that", name,
                       peer);
    return 0;
}

int rf_send(struct rf_comm *comm, const void *buffer, size_t count, enum rf_dtype dtype, int peer,
            int tag, const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(check(comm, "send", buffer, count, dtype, peer, tag, opts));
    RETURN_IF_ERROR(not_self(comm, "send", peer));
    RETURN_IF_ERROR(rf_comm_enter(comm));
    struct half half = half_of(RF_COLL_SEND, buffer, count, dtype, peer, tag, opts);
    return exchange(comm, &half, NULL, opts ? opts->timeout_s : 0);
}

int rf_recv(struct rf_comm *comm, void *buffer, size_t count, enum rf_dtype dtype, int peer,
            int tag, const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(check(comm, "recv", buffer, count, dtype, peer, tag, opts));
    RETURN_IF_ERROR(not_self(comm, "recv", peer));
    RETURN_IF_ERROR(rf_comm_enter(comm));
    struct half half = half_of(RF_COLL_RECV, buffer, count, dtype, peer, tag, opts);
    return exchange(comm, NULL, &half, opts ? opts->timeout_s : 0);
}

static int to_self(const void *send, size_t send_count, void *recv, size_t recv_count, int src,
                   int dst, enum rf_dtype dtype)
{
    if (src != dst)
        return rf_fail(RF_EINVAL,
                       "sendrecv: a message to this rank itself must be received in the same "
                       "call (dst %d, src %d)",
                       dst, src);
    if (send_count != recv_count)
        return rf_fail(RF_EINVAL, "sendrecv: %zu elements sent to this rank itself, %zu received",
                       send_count, recv_count);
    if (send_count > 0)
        memmove(recv, send, send_count * rf_dtype_bytes(dtype));
    return 0;
}

int rf_sendrecv(struct rf_comm *comm, const void *send, size_t send_count, int dst, void *recv,
                size_t recv_count, int src, enum rf_dtype dtype, int tag,
                const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(check(comm, "sendrecv", send, send_count, dtype, dst, tag, opts));
    RETURN_IF_ERROR(check(comm, "sendrecv", recv, recv_count, dtype, src, tag, opts));
    uintptr_t s = (uintptr_t)send, r = (uintptr_t)recv;
    size_t element = rf_dtype_bytes(dtype);
    if (s < r + recv_count * element && r < s + send_count * element)
        return rf_fail(RF_EINVAL, "sendrecv: the two buffers overlap");
    RETURN_IF_ERROR(rf_comm_enter(comm));
    if (dst == comm->rank || src == comm->rank)
        return to_self(send, send_count, recv, recv_count, src, dst, dtype);
    struct half out = half_of(RF_COLL_SEND, send, send_count, dtype, dst, tag, opts);
    struct half in = half_of(RF_COLL_RECV, recv, recv_count, dtype, src, tag, opts);
    return exchange(comm, &out, &in, opts ? opts->timeout_s : 0);
}
