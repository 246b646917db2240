/* SPDX-License-Identifier: MIT
 *
 * rf_send, rf_recv, rf_sendrecv: checks, then the messages run at once (p2p_op.c), are queued, or
 * are added to a group.
 */
#include <ringforge/ringforge.h>

#include "../family.h"
#include "../p2p.h"

/* ---- checks and public calls ----------------------------------------------------------------- */

int rf_p2p_op_check(const struct rf_comm *comm, const char *name, const void *data, size_t count,
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
    if (!data && count > 0)
        return rf_fail(RF_EINVAL, "%s: the buffer is NULL, but there are %zu elements", name,
                       count);
    return opts ? rf_check_seconds(name, opts->timeout_s) : 0;
}

struct rf_p2p_op rf_p2p_op_of(enum rf_coll_op op, const void *buffer, size_t count,
                              enum rf_dtype dtype, int peer, int tag,
                              const struct rf_coll_opts *opts)
{
    struct rf_p2p_op p2p_op = {.is_send = op == RF_COLL_SEND,
                               .peer = peer,
                               .tag = (uint32_t)tag,
                               .buffer = (void *)(uintptr_t)buffer,
                               .bytes = count * rf_dtype_bytes(dtype)};
    p2p_op.contract = (struct rf_contract){
        .count = count, .op = (uint8_t)op, .dtype = (uint8_t)dtype, .root = peer};
    rf_contract_label(&p2p_op.contract, opts ? opts->label : NULL);
    return p2p_op;
}

static int not_self(const struct rf_comm *comm, const char *name, int peer,
                    const struct rf_coll_opts *opts)
{
    if (peer == comm->rank && !comm->group && !(opts && opts->request))
        return rf_fail(RF_EINVAL,
                       "%s: rank %d is this rank itself; rf_sendrecv can do that, or a request",
                       name, peer);
    return 0;
}

/* Blocks. A task on a tensor is one send or receive. */
static int run_blocking(struct rf_comm *comm, struct rf_task *job)
{
    struct rf_p2p_op *p2p_op = &job->p2p_ops[0];
    int rc = 0;
    RETURN_IF_ERROR(rf_comm_wait_after(comm, job->after));
    while (rc == 0 && (rc = rf_p2p_fetch(comm->p2p, p2p_op)) == 0)
        rc = rf_slot_wait(p2p_op->slot);
    if (rc < 0)
        rc = rf_comm_fail_operation(comm, rc, -1, &p2p_op->contract);
    else
        rc = rf_p2p_exchange(comm, job->p2p_ops, job->p2p_op_count, job->call.timeout_s);
    if (rc < 0)
        rf_staging_abandon_all(comm);
    rf_free(p2p_op->copy);
    return rc;
}

static int enter(struct rf_comm *comm, const struct rf_p2p_op *p2p_op)
{
    RETURN_IF_ERROR(rf_comm_enter(comm));
    comm->history.last_p2p = p2p_op->contract;
    comm->history.last_p2p_after = comm->history.next_sequence;
    return 0;
}

int rf_p2p_ops_start(struct rf_comm *comm, struct rf_task *job, const struct rf_coll_opts *opts)
{
    struct rf_request **request = opts ? opts->request : NULL;
    struct rf_point *done = opts && job->on_tensors ? opts->done : NULL;
    job->call.timeout_s = opts ? opts->timeout_s : 0;
    if (comm->group)
        return request ? rf_group_add_task(comm, job, request)
                       : rf_group_add_p2p_ops(comm, job->p2p_ops, job->p2p_op_count,
                                              job->call.timeout_s);
    rf_family_enter(comm->membership.family);
    if (!request && !done && rf_async_busy(comm->async))
        return rf_async_run(comm, job);
    if (!rf_async_busy(comm->async))
        RETURN_IF_ERROR(enter(comm, &job->p2p_ops[0]));
    if (request)
        return rf_async_push_request(comm, job, request);
    if (done)
        return rf_async_push(comm, job, rf_buffer_device(job->in.buffer), done);
    return run_blocking(comm, job);
}

/* Uses no task if the call blocks: clearing one takes longer than a short message. */
static int start_ops(struct rf_comm *comm, struct rf_p2p_op *p2p_ops, size_t count,
                     const struct rf_coll_opts *opts)
{
    if (comm->group || (opts && opts->request) || rf_async_busy(comm->async)) {
        struct rf_task job = {.p2p_ops = p2p_ops, .p2p_op_count = count};
        return rf_p2p_ops_start(comm, &job, opts);
    }
    RETURN_IF_ERROR(enter(comm, &p2p_ops[0]));
    return rf_p2p_exchange(comm, p2p_ops, count, opts ? opts->timeout_s : 0);
}

int rf_send(struct rf_comm *comm, const void *buffer, size_t count, enum rf_dtype dtype, int peer,
            int tag, const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(rf_p2p_op_check(comm, "send", buffer, count, dtype, peer, tag, opts));
    RETURN_IF_ERROR(not_self(comm, "send", peer, opts));
    struct rf_p2p_op p2p_op = rf_p2p_op_of(RF_COLL_SEND, buffer, count, dtype, peer, tag, opts);
    return start_ops(comm, &p2p_op, 1, opts);
}

int rf_recv(struct rf_comm *comm, void *buffer, size_t count, enum rf_dtype dtype, int peer,
            int tag, const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(rf_p2p_op_check(comm, "recv", buffer, count, dtype, peer, tag, opts));
    RETURN_IF_ERROR(not_self(comm, "recv", peer, opts));
    struct rf_p2p_op p2p_op = rf_p2p_op_of(RF_COLL_RECV, buffer, count, dtype, peer, tag, opts);
    return start_ops(comm, &p2p_op, 1, opts);
}

static int to_self(const struct rf_sendrecv_args *a)
{
    if (a->src != a->dst)
        return rf_fail(RF_EINVAL,
                       "sendrecv: a message to this rank itself must be received in the same "
                       "call (dst %d, src %d)",
                       a->dst, a->src);
    if (a->send_count != a->recv_count)
        return rf_fail(RF_EINVAL, "sendrecv: %zu elements sent to this rank itself, %zu received",
                       a->send_count, a->recv_count);
    if (a->send_count > 0)
        memmove(a->recv, a->send, a->send_count * rf_dtype_bytes(a->dtype));
    return 0;
}

static bool overlap(const struct rf_sendrecv_args *a)
{
    const uintptr_t send = (uintptr_t)a->send, recv = (uintptr_t)a->recv;
    const size_t element = rf_dtype_bytes(a->dtype);
    return send < recv + a->recv_count * element && recv < send + a->send_count * element;
}

int rf_sendrecv(struct rf_comm *comm, const struct rf_sendrecv_args *a,
                const struct rf_coll_opts *opts)
{
    if (!a)
        return rf_fail(RF_EINVAL, "sendrecv: the arguments are NULL");
    RETURN_IF_ERROR(
        rf_p2p_op_check(comm, "sendrecv", a->send, a->send_count, a->dtype, a->dst, a->tag, opts));
    RETURN_IF_ERROR(
        rf_p2p_op_check(comm, "sendrecv", a->recv, a->recv_count, a->dtype, a->src, a->tag, opts));
    if (overlap(a))
        return rf_fail(RF_EINVAL, "sendrecv: the two buffers overlap");
    if (!comm->group && !(opts && opts->request) &&
        (a->dst == comm->rank || a->src == comm->rank)) {
        RETURN_IF_ERROR(rf_comm_enter(comm));
        return to_self(a);
    }
    struct rf_p2p_op p2p_ops[] = {
        rf_p2p_op_of(RF_COLL_SEND, a->send, a->send_count, a->dtype, a->dst, a->tag, opts),
        rf_p2p_op_of(RF_COLL_RECV, a->recv, a->recv_count, a->dtype, a->src, a->tag, opts)};
    return start_ops(comm, p2p_ops, 2, opts);
}
