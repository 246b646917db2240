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

static int same_count(const char *op, struct rf_tensor in, size_t in_ranks, struct rf_tensor out,
                      size_t out_ranks)
{
    char a[96], b[96];
    if (count_of(in) * out_ranks == count_of(out) * in_ranks)
        return 0;
    return rf_fail(RF_EINVAL, "%s: in is %s, out is %s; their elements do not go together", op,
                   rf_tensor_text(in, a, sizeof(a)), rf_tensor_text(out, b, sizeof(b)));
}

int rf_all_reduce_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                         enum rf_redop redop, const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(same_count("all_reduce", in, 1, out, 1));
    struct rf_task job = {.in = in, .out = out};
    job.call = (struct rf_call){
        .desc = {.op = RF_COLL_ALL_REDUCE, .count = count_of(out), .redop = redop, .root = -1}};
    return rf_task_start(comm, &job, opts);
}

int rf_reduce_scatter_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                             enum rf_redop redop, const struct rf_coll_opts *opts)
{
    size_t ranks = comm ? (size_t)comm->size : 1;
    RETURN_IF_ERROR(same_count("reduce_scatter", in, ranks, out, 1));
    struct rf_task job = {.in = in, .out = out};
    job.call = (struct rf_call){
        .desc = {.op = RF_COLL_REDUCE_SCATTER, .count = count_of(out), .redop = redop, .root = -1}};
    return rf_task_start(comm, &job, opts);
}

int rf_all_gather_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                         const struct rf_coll_opts *opts)
{
    size_t ranks = comm ? (size_t)comm->size : 1;
    RETURN_IF_ERROR(same_count("all_gather", in, 1, out, ranks));
    struct rf_task job = {.in = in, .out = out};
    job.call =
        (struct rf_call){.desc = {.op = RF_COLL_ALL_GATHER, .count = count_of(in), .root = -1}};
    return rf_task_start(comm, &job, opts);
}

int rf_broadcast_tensor(struct rf_comm *comm, struct rf_tensor tensor, int root,
                        const struct rf_coll_opts *opts)
{
    struct rf_task job = {.in = tensor, .out = tensor};
    job.call = (struct rf_call){
        .desc = {.op = RF_COLL_BROADCAST, .count = count_of(tensor), .root = root}};
    return rf_task_start(comm, &job, opts);
}

/* For operations with a root: only the root has one side, with `size` pieces or one. */
static int rooted(struct rf_comm *comm, enum rf_coll_op op, struct rf_tensor in,
                  struct rf_tensor out, size_t count, enum rf_redop redop, int root,
                  const struct rf_coll_opts *opts)
{
    struct rf_task job = {.in = in, .out = out};
    job.call = (struct rf_call){.desc = {.op = op, .count = count, .redop = redop, .root = root}};
    return rf_task_start(comm, &job, opts);
}

int rf_reduce_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                     enum rf_redop redop, int root, const struct rf_coll_opts *opts)
{
    if (comm && comm->rank == root)
        RETURN_IF_ERROR(same_count("reduce", in, 1, out, 1));
    return rooted(comm, RF_COLL_REDUCE, in, out, count_of(in), redop, root, opts);
}

int rf_gather_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out, int root,
                     const struct rf_coll_opts *opts)
{
    if (comm && comm->rank == root)
        RETURN_IF_ERROR(same_count("gather", in, 1, out, (size_t)comm->size));
    return rooted(comm, RF_COLL_GATHER, in, out, count_of(in), RF_SUM, root, opts);
}

int rf_scatter_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out, int root,
                      const struct rf_coll_opts *opts)
{
    if (comm && comm->rank == root)
        RETURN_IF_ERROR(same_count("scatter", in, (size_t)comm->size, out, 1));
    return rooted(comm, RF_COLL_SCATTER, in, out, count_of(out), RF_SUM, root, opts);
}

int rf_all_to_all_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                         const struct rf_coll_opts *opts)
{
    const size_t ranks = comm ? (size_t)comm->size : 1;
    RETURN_IF_ERROR(same_count("all_to_all", in, 1, out, 1));
    if (count_of(in) % ranks)
        return rf_fail(RF_EINVAL, "all_to_all: %zu elements cannot be divided among %zu ranks",
                       count_of(in), ranks);
    struct rf_task job = {.in = in, .out = out};
    job.call = (struct rf_call){
        .desc = {.op = RF_COLL_ALL_TO_ALL, .count = count_of(in) / ranks, .root = -1}};
    return rf_task_start(comm, &job, opts);
}
