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

/* ---- from a description ---------------------------------------------------------------------- */

int rf_call_take(const struct rf_comm *comm, const struct rf_coll_desc *desc,
                 const struct rf_coll_opts *opts, struct rf_call *call)
{
    if (!comm || !desc)
        return rf_fail(RF_EINVAL, "a collective: the %s is NULL",
                       desc ? "communicator" : "description");
    const char *op = rf_coll_op_name(desc->op);
    if (rf_coll_adds_leaves(desc->op) || rf_coll_is_point(desc->op))
        return rf_fail(RF_EINVAL, "%s has a function of its own (collectives.h, tree_order.h)", op);
    if (desc->forest || desc->stride || desc->leaves || desc->round || desc->hosts ||
        desc->shared || desc->segment_bytes || desc->window_bytes || desc->model ||
        desc->most_parts || desc->is_window || desc->staged)
        return rf_fail(RF_EINVAL,
                       "%s: the description has fields for predictions or sums over "
                       "micro-batches, which a call does not use: leave them 0",
                       op);
    if ((desc->ranks && desc->ranks != comm->size) || (desc->rank && desc->rank != comm->rank))
        return rf_fail(RF_EINVAL,
                       "%s: the description is of rank %d of %d, and this is rank %d of %d", op,
                       desc->rank, desc->ranks, comm->rank, comm->size);
    if (desc->recv_counts && desc->op != RF_COLL_ALL_TO_ALL)
        return rf_fail(RF_EINVAL, "%s: recv_counts are for all_to_all", op);
    if (desc->op == RF_COLL_ALL_TO_ALL && !desc->counts != !desc->recv_counts)
        return rf_fail(RF_EINVAL, "all_to_all: counts and recv_counts are needed together");
    if (desc->counts && !rf_coll_has_shares(desc->op))
        return rf_fail(RF_EINVAL, "%s: every rank has all elements; leave counts NULL", op);
    if (!rf_coll_has_root(desc->op) && desc->root > 0)
        return rf_fail(RF_EINVAL, "%s has no root; leave it 0", op);
    if (!rf_coll_reduces(desc->op) && desc->redop != RF_SUM)
        return rf_fail(RF_EINVAL, "%s reduces nothing; leave redop 0", op);
    if (desc->order != (opts ? opts->order : RF_ORDER_ANY))
        return rf_fail(RF_EINVAL, "%s: the order is that of opts, and the description has another",
                       op);
    *call = (struct rf_call){.desc = *desc};
    call->desc.rank = call->desc.ranks = 0;
    if (!rf_coll_has_root(desc->op))
        call->desc.root = NO_ROOT;
    if (desc->op == RF_COLL_BARRIER)
        call->desc.dtype = RF_U8;
    return desc->counts ? rf_call_sum(comm, desc->op, desc->counts, &call->desc.count) : 0;
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

static int check_both_counts(struct rf_comm *comm, struct rf_call *call)
{
    size_t expected;
    RETURN_IF_ERROR(rf_group_refuse(comm, "all_to_all with counts, which exchanges them first"));
    RETURN_IF_ERROR(rf_call_sum(comm, RF_COLL_ALL_TO_ALL, call->desc.recv_counts, &expected));
    RETURN_IF_ERROR(rf_call_check(comm, call));
    return rf_call_check_buffers(comm, call);
}

int rf_collective(struct rf_comm *comm, const void *in, void *out, const struct rf_coll_desc *desc,
                  const struct rf_coll_opts *opts)
{
    struct rf_call call;
    RETURN_IF_ERROR(rf_call_take(comm, desc, opts, &call));
    if (!desc->counts)
        return equal(comm, desc->op, in, out, desc->count, call.desc.dtype, desc->redop,
                     call.desc.root, opts);
    call.in = in;
    call.out = out;
    if (desc->recv_counts) {
        RETURN_IF_ERROR(check_both_counts(comm, &call));
        RETURN_IF_ERROR(rf_call_exchange_counts(comm, &call, opts));
    }
    return rf_call_start(comm, &call, opts);
}
