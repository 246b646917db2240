/* SPDX-License-Identifier: MIT
 *
 * rf_send_tensor, rf_recv_tensor: checks, then the same path as host memory (send_recv.c). Memory
 * that the host can map is used in place; other memory goes through slots of staging memory
 * (p2p_op_pieces.c, p2p_op.c). The messages are the same, except for the pieces of long ones.
 */
#include <ringforge/ringforge.h>

#include "../p2p.h"

static int check(struct rf_comm *comm, const char *name, struct rf_tensor tensor, int peer, int tag,
                 const struct rf_coll_opts *opts)
{
    char text[96];
    const int64_t count = rf_tensor_count(tensor);
    if (count < 0)
        return rf_fail(RF_EINVAL, "%s: %s is no valid shape and type", name,
                       rf_tensor_text(tensor, text, sizeof(text)));
    RETURN_IF_ERROR(
        rf_p2p_op_check(comm, name, tensor.buffer, (size_t)count, tensor.dtype, peer, tag, opts));
    RETURN_IF_ERROR(rf_group_refuse(comm, "a call on tensors"));
    if (opts && opts->request && opts->done)
        return rf_fail(RF_EINVAL, "%s: a call has either a request or `done`, not both", name);
    if (opts && (opts->reduction || opts->scale || opts->wire_dtype != RF_F32))
        return rf_fail(RF_EINVAL, "%s: a message is not reduced, scaled or converted", name);
    if (opts && opts->done && !tensor.buffer)
        return rf_fail(RF_EINVAL,
                       "%s: `done` is a point of a tensor's device, and this tensor has no buffer",
                       name);
    if (peer == comm->rank && !(opts && (opts->request || opts->done)))
        return rf_fail(RF_EINVAL,
                       "%s: rank %d is this rank itself; give the call a request or `done`", name,
                       peer);
    return 0;
}

static int start(struct rf_comm *comm, enum rf_coll_op op, struct rf_tensor tensor, int peer,
                 int tag, const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(check(comm, rf_coll_op_name(op), tensor, peer, tag, opts));
    void *map = tensor.buffer ? rf_tensor_map(tensor) : NULL;
    struct rf_p2p_op p2p_op =
        rf_p2p_op_of(op, map, (size_t)rf_tensor_count(tensor), tensor.dtype, peer, tag, opts);
    if (!map && p2p_op.bytes > 0) {
        p2p_op.remote = tensor.buffer;
        p2p_op.remote_offset = tensor.offset;
    }
    struct rf_task job = {.p2p_ops = &p2p_op, .p2p_op_count = 1, .on_tensors = true, .in = tensor};
    if (opts)
        job.after = opts->after;
    return rf_p2p_ops_start(comm, &job, opts);
}

int rf_send_tensor(struct rf_comm *comm, struct rf_tensor tensor, int peer, int tag,
                   const struct rf_coll_opts *opts)
{
    return start(comm, RF_COLL_SEND, tensor, peer, tag, opts);
}

int rf_recv_tensor(struct rf_comm *comm, struct rf_tensor tensor, int peer, int tag,
                   const struct rf_coll_opts *opts)
{
    return start(comm, RF_COLL_RECV, tensor, peer, tag, opts);
}
