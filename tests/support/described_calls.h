/* SPDX-License-Identifier: MIT
 *
 * Calls from a description, with their parts as arguments, for tests that make many of them.
 */
#ifndef RF_TESTS_SUPPORT_DESCRIBED_CALLS_H
#define RF_TESTS_SUPPORT_DESCRIBED_CALLS_H

#include <ringforge/ringforge.h>

namespace described
{

inline rf_coll_desc desc(rf_coll_op op, const size_t *counts, rf_dtype dtype, rf_redop redop,
                         int root, const rf_coll_opts *opts)
{
    rf_coll_desc out = {};
    out.op = op;
    out.counts = counts;
    out.dtype = dtype;
    out.redop = redop;
    out.root = root;
    out.order = opts ? opts->order : RF_ORDER_ANY;
    return out;
}

inline int all_gather_v(rf_comm *comm, const void *in, void *out, const size_t *counts,
                        rf_dtype dtype, const rf_coll_opts *opts)
{
    const rf_coll_desc call = desc(RF_COLL_ALL_GATHER, counts, dtype, RF_SUM, 0, opts);
    return rf_collective(comm, in, out, &call, opts);
}

inline int reduce_scatter_v(rf_comm *comm, const void *in, void *out, const size_t *counts,
                            rf_dtype dtype, rf_redop redop, const rf_coll_opts *opts)
{
    const rf_coll_desc call = desc(RF_COLL_REDUCE_SCATTER, counts, dtype, redop, 0, opts);
    return rf_collective(comm, in, out, &call, opts);
}

inline int gather_v(rf_comm *comm, const void *in, void *out, const size_t *counts, rf_dtype dtype,
                    int root, const rf_coll_opts *opts)
{
    const rf_coll_desc call = desc(RF_COLL_GATHER, counts, dtype, RF_SUM, root, opts);
    return rf_collective(comm, in, out, &call, opts);
}

inline int scatter_v(rf_comm *comm, const void *in, void *out, const size_t *counts, rf_dtype dtype,
                     int root, const rf_coll_opts *opts)
{
    const rf_coll_desc call = desc(RF_COLL_SCATTER, counts, dtype, RF_SUM, root, opts);
    return rf_collective(comm, in, out, &call, opts);
}

inline int all_to_all_v(rf_comm *comm, const void *in, const size_t *send, void *out,
                        const size_t *recv, rf_dtype dtype, const rf_coll_opts *opts)
{
    rf_coll_desc call = desc(RF_COLL_ALL_TO_ALL, send, dtype, RF_SUM, 0, opts);
    call.recv_counts = recv;
    return rf_collective(comm, in, out, &call, opts);
}

inline int sendrecv(rf_comm *comm, const void *send, size_t send_count, int dst, void *recv,
                    size_t recv_count, int src, rf_dtype dtype, int tag, const rf_coll_opts *opts)
{
    const rf_sendrecv_args args = {send, send_count, dst, recv, recv_count, src, dtype, tag};
    return rf_sendrecv(comm, &args, opts);
}

/* On tensors, which have the type. */
inline int on_tensors(rf_comm *comm, rf_tensor in, rf_tensor out, rf_coll_op op,
                      const size_t *counts, rf_redop redop, int root, const rf_coll_opts *opts)
{
    const rf_coll_desc call = desc(op, counts, RF_F32, redop, root, opts);
    return rf_collective_tensor(comm, in, out, &call, opts);
}

inline int reduce_tensor(rf_comm *comm, rf_tensor in, rf_tensor out, rf_redop redop, int root,
                         const rf_coll_opts *opts)
{
    return on_tensors(comm, in, out, RF_COLL_REDUCE, nullptr, redop, root, opts);
}

inline int gather_tensor(rf_comm *comm, rf_tensor in, rf_tensor out, int root,
                         const rf_coll_opts *opts)
{
    return on_tensors(comm, in, out, RF_COLL_GATHER, nullptr, RF_SUM, root, opts);
}

inline int scatter_tensor(rf_comm *comm, rf_tensor in, rf_tensor out, int root,
                          const rf_coll_opts *opts)
{
    return on_tensors(comm, in, out, RF_COLL_SCATTER, nullptr, RF_SUM, root, opts);
}

inline int all_gather_v_tensor(rf_comm *comm, rf_tensor in, rf_tensor out, const size_t *counts,
                               const rf_coll_opts *opts)
{
    return on_tensors(comm, in, out, RF_COLL_ALL_GATHER, counts, RF_SUM, 0, opts);
}

inline int reduce_scatter_v_tensor(rf_comm *comm, rf_tensor in, rf_tensor out, const size_t *counts,
                                   rf_redop redop, const rf_coll_opts *opts)
{
    return on_tensors(comm, in, out, RF_COLL_REDUCE_SCATTER, counts, redop, 0, opts);
}

inline int gather_v_tensor(rf_comm *comm, rf_tensor in, rf_tensor out, const size_t *counts,
                           int root, const rf_coll_opts *opts)
{
    return on_tensors(comm, in, out, RF_COLL_GATHER, counts, RF_SUM, root, opts);
}

inline int scatter_v_tensor(rf_comm *comm, rf_tensor in, rf_tensor out, const size_t *counts,
                            int root, const rf_coll_opts *opts)
{
    return on_tensors(comm, in, out, RF_COLL_SCATTER, counts, RF_SUM, root, opts);
}

inline int all_to_all_v_tensor(rf_comm *comm, rf_tensor in, const size_t *send, rf_tensor out,
                               const size_t *recv, const rf_coll_opts *opts)
{
    rf_coll_desc call = desc(RF_COLL_ALL_TO_ALL, send, RF_F32, RF_SUM, 0, opts);
    call.recv_counts = recv;
    return rf_collective_tensor(comm, in, out, &call, opts);
}

} // namespace described

#endif
