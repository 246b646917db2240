/* SPDX-License-Identifier: MIT
 *
 * The public collectives on host memory: each fills in a call, which call_start.c checks and
 * starts.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../task.h"

enum { NO_ROOT = -1 };

static bool are_plain(const struct rf_coll_opts *opts)
{
    return !opts || !(opts->request || opts->reduction || opts->scale || opts->algorithm ||
                      opts->order || opts->wire_dtype || opts->timeout_s != 0);
}

/* Equal pieces: `count` elements. */
static int equal(struct rf_comm *comm, enum rf_coll_op op, const void *in, void *out, size_t count,
                 enum rf_dtype dtype, enum rf_redop redop, int root,
                 const struct rf_coll_opts *opts)
{
    const struct rf_call *last = comm ? &comm->last.call : NULL;
    if (last && comm->last.cached && last->in == in && last->out == out &&
        last->desc.count == count && last->desc.op == op && last->desc.dtype == dtype &&
        last->desc.redop == redop && last->desc.root == root && are_plain(opts)) {
        comm->last.call.label = opts ? opts->label : NULL;
        return rf_call_repeat(comm);
    }
    /* Copied, because GCC 12 zeroes the end of an initialized one byte by byte: 10 ns per call. */
    static const struct rf_call none;
    struct rf_call call = none;
    call.desc.op = op;
    call.desc.count = count;
    call.desc.dtype = dtype;
    call.desc.redop = redop;
    call.desc.root = root;
    call.in = in;
    call.out = out;
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", rf_coll_op_name(op));
    return rf_call_start(comm, &call, opts);
}

/* A count for each rank. */
static int uneven(struct rf_comm *comm, enum rf_coll_op op, const void *in, void *out,
                  const size_t *counts, enum rf_dtype dtype, enum rf_redop redop, int root,
                  const struct rf_coll_opts *opts)
{
    struct rf_call call = {
        .desc = {.op = op, .counts = counts, .dtype = dtype, .redop = redop, .root = root},
        .in = in,
        .out = out};
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", rf_coll_op_name(op));
    RETURN_IF_ERROR(rf_call_sum(comm, op, counts, &call.desc.count));
    return rf_call_start(comm, &call, opts);
}

int rf_all_reduce(struct rf_comm *comm, const void *in, void *out, size_t count,
                  enum rf_dtype dtype, enum rf_redop redop, const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_ALL_REDUCE, in, out, count, dtype, redop, NO_ROOT, opts);
}

int rf_reduce_scatter(struct rf_comm *comm, const void *in, void *out, size_t count,
                      enum rf_dtype dtype, enum rf_redop redop, const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_REDUCE_SCATTER, in, out, count, dtype, redop, NO_ROOT, opts);
}

int rf_all_gather(struct rf_comm *comm, const void *in, void *out, size_t count,
                  enum rf_dtype dtype, const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_ALL_GATHER, in, out, count, dtype, RF_SUM, NO_ROOT, opts);
}

int rf_broadcast(struct rf_comm *comm, void *buffer, size_t count, enum rf_dtype dtype, int root,
                 const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_BROADCAST, buffer, buffer, count, dtype, RF_SUM, root, opts);
}

int rf_reduce(struct rf_comm *comm, const void *in, void *out, size_t count, enum rf_dtype dtype,
              enum rf_redop redop, int root, const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_REDUCE, in, out, count, dtype, redop, root, opts);
}

int rf_gather(struct rf_comm *comm, const void *in, void *out, size_t count, enum rf_dtype dtype,
              int root, const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_GATHER, in, out, count, dtype, RF_SUM, root, opts);
}

int rf_scatter(struct rf_comm *comm, const void *in, void *out, size_t count, enum rf_dtype dtype,
               int root, const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_SCATTER, in, out, count, dtype, RF_SUM, root, opts);
}

int rf_all_to_all(struct rf_comm *comm, const void *in, void *out, size_t count,
                  enum rf_dtype dtype, const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_ALL_TO_ALL, in, out, count, dtype, RF_SUM, NO_ROOT, opts);
}

int rf_barrier(struct rf_comm *comm, const struct rf_coll_opts *opts)
{
    return equal(comm, RF_COLL_BARRIER, NULL, NULL, 0, RF_U8, RF_SUM, NO_ROOT, opts);
}

/* ---- with a count for each rank -------------------------------------------------------------- */

int rf_all_gather_v(struct rf_comm *comm, const void *in, void *out, const size_t *counts,
                    enum rf_dtype dtype, const struct rf_coll_opts *opts)
{
    return uneven(comm, RF_COLL_ALL_GATHER, in, out, counts, dtype, RF_SUM, NO_ROOT, opts);
}

int rf_reduce_scatter_v(struct rf_comm *comm, const void *in, void *out, const size_t *counts,
                        enum rf_dtype dtype, enum rf_redop redop, const struct rf_coll_opts *opts)
{
    return uneven(comm, RF_COLL_REDUCE_SCATTER, in, out, counts, dtype, redop, NO_ROOT, opts);
}

int rf_gather_v(struct rf_comm *comm, const void *in, void *out, const size_t *counts,
                enum rf_dtype dtype, int root, const struct rf_coll_opts *opts)
{
    return uneven(comm, RF_COLL_GATHER, in, out, counts, dtype, RF_SUM, root, opts);
}

int rf_scatter_v(struct rf_comm *comm, const void *in, void *out, const size_t *counts,
                 enum rf_dtype dtype, int root, const struct rf_coll_opts *opts)
{
    return uneven(comm, RF_COLL_SCATTER, in, out, counts, dtype, RF_SUM, root, opts);
}

/* Compares the send counts of others with the counts that this rank expects. */
static int compare_counts(struct rf_comm *comm, const size_t *sizes, const struct rf_call *call)
{
    for (int r = 0; r < comm->size; r++) {
        if (sizes[r] == call->desc.recv_counts[r])
            continue;
        return rf_comm_fail_text(comm, RF_EMISMATCH, r, NULL,
                                 "all_to_all: rank %d sends %zu %s to rank %d, which expects %zu",
                                 r, sizes[r], rf_dtype_name(call->desc.dtype), comm->rank,
                                 call->desc.recv_counts[r]);
    }
    return 0;
}

int rf_call_exchange_counts(struct rf_comm *comm, const struct rf_call *call,
                            const struct rf_coll_opts *opts)
{
    struct rf_coll_opts blocking = {0};
    if (opts) {
        blocking.label = opts->label;
        blocking.timeout_s = opts->timeout_s;
    }
    size_t *sizes = rf_alloc((size_t)comm->size * sizeof(*sizes));
    if (!sizes)
        return rf_fail(RF_ENOMEM, "all_to_all: no memory for the counts of %d ranks", comm->size);
    int rc = equal(comm, RF_COLL_ALL_TO_ALL, call->desc.counts, sizes, 1,
                   sizeof(size_t) == 8 ? RF_I64 : RF_I32, RF_SUM, NO_ROOT, &blocking);
    if (rc == 0)
        rc = compare_counts(comm, sizes, call);
    rf_free(sizes);
    return rc;
}

int rf_all_to_all_v(struct rf_comm *comm, const void *in, const size_t *send_counts, void *out,
                    const size_t *recv_counts, enum rf_dtype dtype, const struct rf_coll_opts *opts)
{
    struct rf_call call = {.desc = {.op = RF_COLL_ALL_TO_ALL,
                                    .counts = send_counts,
                                    .recv_counts = recv_counts,
                                    .dtype = dtype,
                                    .root = -1},
                           .in = in,
                           .out = out};
    size_t expected;
    if (!comm)
        return rf_fail(RF_EINVAL, "all_to_all: the communicator is NULL");
    RETURN_IF_ERROR(rf_group_refuse(comm, "all_to_all with counts, which exchanges them first"));
    RETURN_IF_ERROR(rf_call_sum(comm, RF_COLL_ALL_TO_ALL, recv_counts, &expected));
    RETURN_IF_ERROR(rf_call_sum(comm, RF_COLL_ALL_TO_ALL, send_counts, &call.desc.count));
    RETURN_IF_ERROR(rf_call_check(comm, &call));
    RETURN_IF_ERROR(rf_call_check_buffers(comm, &call));
    RETURN_IF_ERROR(rf_call_exchange_counts(comm, &call, opts));
    return rf_call_start(comm, &call, opts);
}
