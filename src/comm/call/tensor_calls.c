/* SPDX-License-Identifier: MIT
 *
 * Collectives on device tensors: checks, then the same path as host memory. Mapped memory is used
 * in place. Other memory travels through staging memory (comm_staging.c): the same messages, and so
 * the same bits.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../family.h"
#include "../task.h"

/* ---- checks ---------------------------------------------------------------------------------- */

static bool lacks(struct rf_tensor tensor, size_t elements)
{
    if (!tensor.buffer)
        return false;
    const int64_t count = rf_tensor_count(tensor);
    return count < 0 || (uint64_t)count < elements;
}

static int check_tensors(const struct rf_comm *comm, const struct rf_task *job)
{
    const char *op = rf_coll_op_name(job->call.desc.op);
    size_t in, out, element = rf_dtype_bytes(job->call.desc.dtype);
    char a[96], b[96];
    rf_call_counts(comm, &job->call, &in, &out);
    const bool both = job->in.buffer && job->out.buffer;
    const struct rf_operation *row = rf_operation(job->call.desc.op);
    const bool rooted = row->in_on_root || row->out_on_root;
    const bool optional = job->call.desc.counts || (rooted && (job->in.buffer || job->out.buffer));
    if (!both && (!optional || (in > 0 && !job->in.buffer) || (out > 0 && !job->out.buffer)))
        return rf_fail(RF_EINVAL, "%s: a tensor without a buffer", op);
    if (both && job->in.dtype != job->out.dtype)
        return rf_fail(RF_EINVAL, "%s: in is %s, out is %s; the types differ", op,
                       rf_tensor_text(job->in, a, sizeof(a)),
                       rf_tensor_text(job->out, b, sizeof(b)));
    if (lacks(job->in, in) || lacks(job->out, out))
        return rf_fail(RF_EINVAL, "%s: in is %s, out is %s, but %zu and %zu elements are needed",
                       op, rf_tensor_text(job->in, a, sizeof(a)),
                       rf_tensor_text(job->out, b, sizeof(b)), in, out);
    if (!both)
        return 0;
    uint64_t in_at = job->in.offset, out_at = job->out.offset;
    bool apart = job->in.buffer != job->out.buffer || in_at + in * element <= out_at ||
                 out_at + out * element <= in_at;
    if (!apart && !rf_call_in_place(comm, &job->call, in_at, out_at))
        return rf_fail(RF_EINVAL,
                       "%s: in and out overlap; they may be apart, or in place as the header says",
                       op);
    return 0;
}

int rf_task_check(struct rf_comm *comm, struct rf_task *job, const struct rf_coll_opts *opts)
{
    const char *op = rf_coll_op_name(job->call.desc.op);
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", op);
    RETURN_IF_ERROR(rf_group_refuse(comm, "a call on tensors"));
    job->call.desc.dtype = job->out.buffer || !job->in.buffer ? job->out.dtype : job->in.dtype;
    if (opts && opts->request && opts->done)
        return rf_fail(RF_EINVAL, "%s: a call has either a request or `done`, not both", op);
    if (opts && (opts->reduction || opts->scale || opts->wire_dtype != RF_F32))
        return rf_fail(RF_EINVAL,
                       "%s: reductions of one's own, scales and a wire_dtype are for host memory",
                       op);
    if (opts) {
        if (!rf_coll_adds_leaves(job->call.desc.op))
            job->call.desc.order = opts->order;
        job->call.label = opts->label;
        job->call.algorithm = opts->algorithm;
        job->call.timeout_s = opts->timeout_s;
        job->after = opts->after;
    }
    RETURN_IF_ERROR(rf_call_check(comm, &job->call));
    RETURN_IF_ERROR(check_tensors(comm, job));
    if (opts && opts->done && !rf_task_device(job))
        return rf_fail(RF_EINVAL,
                       "%s: `done` is a point of a tensor's device, and this rank has "
                       "no tensor in the call",
                       op);
    return 0;
}

int rf_task_start(struct rf_comm *comm, struct rf_task *job, const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(rf_task_check(comm, job, opts));
    job->on_tensors = true;
    if (rf_async_busy(comm->async)) {
        rf_family_enter(comm->membership.family);
        if (!opts || (!opts->done && !opts->request))
            return rf_async_run(comm, job);
    } else {
        RETURN_IF_ERROR(rf_comm_ready(comm));
    }
    if (opts && opts->request)
        return rf_async_push_request(comm, job, opts->request);
    if (opts && opts->done)
        return rf_async_push(comm, job, rf_task_device(job), opts->done);
    return rf_task_run(comm, job);
}

/* ---- public ---------------------------------------------------------------------------------- */

static size_t count_of(struct rf_tensor tensor)
{
    int64_t count = rf_tensor_count(tensor);
    return count > 0 ? (size_t)count : 0;
}

static size_t ranks_in(const struct rf_comm *comm, enum rf_coll_shape shape)
{
    return shape == RF_SHAPE_SHARES ? (size_t)comm->size : 1;
}

/* The `count` of a call without counts: that of the side which all ranks have. */
static int count_call(const struct rf_comm *comm, struct rf_task *job)
{
    const char *op = rf_coll_op_name(job->call.desc.op);
    const struct rf_operation *row = rf_operation(job->call.desc.op);
    const bool is_root = comm->rank == job->call.desc.root;
    const size_t in = count_of(job->in), out = count_of(job->out);
    const size_t in_ranks = ranks_in(comm, row->in), out_ranks = ranks_in(comm, row->out);
    const bool has_in = !row->in_on_root || is_root, has_out = !row->out_on_root || is_root;
    char a[96], b[96];
    if (has_in && has_out && in * out_ranks != out * in_ranks)
        return rf_fail(RF_EINVAL, "%s: in is %s, out is %s; their elements do not go together", op,
                       rf_tensor_text(job->in, a, sizeof(a)),
                       rf_tensor_text(job->out, b, sizeof(b)));
    if (in_ranks > 1 && out_ranks > 1 && in % in_ranks != 0)
        return rf_fail(RF_EINVAL, "%s: %zu elements cannot be divided among %zu ranks", op, in,
                       in_ranks);
    job->call.desc.count = row->in_on_root ? out / out_ranks : in / in_ranks;
    return 0;
}

/* Equal pieces. */
static int equal(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                 const struct rf_coll_desc *desc, const struct rf_coll_opts *opts)
{
    struct rf_task job = {.in = in, .out = out, .call.desc = *desc};
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", rf_coll_op_name(desc->op));
    RETURN_IF_ERROR(count_call(comm, &job));
    return rf_task_start(comm, &job, opts);
}

int rf_all_reduce_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                         enum rf_redop redop, const struct rf_coll_opts *opts)
{
    const struct rf_coll_desc desc = {.op = RF_COLL_ALL_REDUCE, .redop = redop, .root = -1};
    return equal(comm, in, out, &desc, opts);
}

int rf_reduce_scatter_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                             enum rf_redop redop, const struct rf_coll_opts *opts)
{
    const struct rf_coll_desc desc = {.op = RF_COLL_REDUCE_SCATTER, .redop = redop, .root = -1};
    return equal(comm, in, out, &desc, opts);
}

int rf_all_gather_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                         const struct rf_coll_opts *opts)
{
    const struct rf_coll_desc desc = {.op = RF_COLL_ALL_GATHER, .root = -1};
    return equal(comm, in, out, &desc, opts);
}

int rf_broadcast_tensor(struct rf_comm *comm, struct rf_tensor tensor, int root,
                        const struct rf_coll_opts *opts)
{
    const struct rf_coll_desc desc = {.op = RF_COLL_BROADCAST, .root = root};
    return equal(comm, tensor, tensor, &desc, opts);
}

int rf_all_to_all_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                         const struct rf_coll_opts *opts)
{
    const struct rf_coll_desc desc = {.op = RF_COLL_ALL_TO_ALL, .root = -1};
    return equal(comm, in, out, &desc, opts);
}

int rf_collective_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                         const struct rf_coll_desc *desc, const struct rf_coll_opts *opts)
{
    struct rf_task job = {.in = in, .out = out};
    size_t expected;
    RETURN_IF_ERROR(rf_call_take(comm, desc, opts, &job.call));
    if (desc->count || desc->dtype || desc->op == RF_COLL_BARRIER)
        return rf_fail(RF_EINVAL,
                       "%s: tensors have the count and type of a call, and a barrier has none: "
                       "leave them 0",
                       rf_coll_op_name(desc->op));
    if (!desc->counts)
        return equal(comm, in, out, &job.call.desc, opts);
    if (desc->recv_counts) {
        RETURN_IF_ERROR(rf_call_sum(comm, desc->op, desc->recv_counts, &expected));
        RETURN_IF_ERROR(rf_task_check(comm, &job, opts));
        RETURN_IF_ERROR(rf_call_exchange_counts(comm, &job.call, opts));
    }
    return rf_task_start(comm, &job, opts);
}
