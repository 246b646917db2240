/* SPDX-License-Identifier: MIT
 *
 * Collectives, point-to-point calls and requests. comm.h includes this.
 *
 * All ranks of a communicator call the same operations in the same order (comm.h). Counts are
 * elements, not bytes. "Host memory" is any memory that the process can address.
 */
#ifndef RINGFORGE_COLLECTIVES_H
#define RINGFORGE_COLLECTIVES_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_comm;
struct rf_request;
struct rf_coll_model;
struct rf_forest;

enum rf_coll_op {
    RF_COLL_NONE = 0,
    RF_COLL_ALL_REDUCE,
    RF_COLL_REDUCE_SCATTER,
    RF_COLL_ALL_GATHER,
    RF_COLL_BROADCAST,
    RF_COLL_REDUCE,
    RF_COLL_GATHER,
    RF_COLL_SCATTER,
    RF_COLL_ALL_TO_ALL,
    RF_COLL_BARRIER,
    RF_COLL_SEND,
    RF_COLL_RECV,
    RF_COLL_FOREST_ALL_REDUCE, /* gradients of data-parallel training in tree order: tree_order.h */
    RF_COLL_FOREST_REDUCE_SCATTER,
    RF_COLL_PREFIX_REDUCE_SCATTER,
    RF_COLL_OP_COUNT
};

/* "all_reduce", ... */
RF_EXPORT const char *rf_coll_op_name(enum rf_coll_op op);

/* The properties of an operation. All are false for an invalid number.
 *   has_root: a root, or the peer of a message.
 *   is_point: it is one side of a message, send or recv.
 *   reduces: a reduction and an order.
 *   has_shares: `count` is one rank's share, and there is a form with a count for each rank.
 */
RF_EXPORT bool rf_coll_has_root(enum rf_coll_op op);
RF_EXPORT bool rf_coll_is_point(enum rf_coll_op op);
RF_EXPORT bool rf_coll_reduces(enum rf_coll_op op);
RF_EXPORT bool rf_coll_has_shares(enum rf_coll_op op);

/* ---- options --------------------------------------------------------------------------------- */

/* A user-defined reduction for RF_CUSTOM on host memory. It must be associative up to rounding.
 *   combine: out[i] = left[i] op right[i] for `count` elements of the type of the call. out may be
 * left or right. Pointers may have any alignment. It is called on the thread of the call, or, for a
 * request, on a thread of the communicator. It may be called with any piece of the data. It must
 * not fail, and must not call the library. commutes: false keeps the operands in the order of the
 * ranks. That needs RF_ORDER_TREE or RF_ORDER_ANY; RF_ORDER_RING is RF_EINVAL. name: identifies the
 * reduction; ranks compare it as a part of the contract. NULL = "". */
struct rf_reduction {
    void (*combine)(void *out, const void *left, const void *right, size_t count, void *user);
    void *user;
    bool commutes;
    const char *name;
};

/* Zero is the default of every field. */
struct rf_coll_opts {
    enum rf_order order; /* of the additions of a sum; RF_ORDER_ANY is the default */
    const char *label;   /* call site, a part of the contract; NULL matches any */
    /* Algorithm by name ("ring", "flat", ...: docs/collectives.md), equal on all ranks. NULL:
     * chosen by size. RF_EINVAL: it does not support the call. */
    const char *algorithm;
    double timeout_s; /* 0 = that of the communicator */

    /* For all_reduce, reduce and reduce_scatter on host memory: */
    const struct rf_reduction *reduction; /* with RF_CUSTOM, and only then */
    /* For sum and avg: this rank's input is multiplied by it first. 16-bit types are multiplied in
     * f32 and rounded once. For integers it must be a whole number, and products wrap. Ranks may
     * pass different factors, or none. */
    const double *scale;
    /* RF_F16 or RF_BF16: f32 data are sent in this type and added in f32. RF_F32 (0): sent as they
     * are. Every input and the result is rounded once. With S = sum |x_r| and N ranks the error is
     * at most (u (2 + u) + N 2^-24) S, where u = 2^-11 for f16 and 2^-8 for bf16, as long as f16
     * neither overflows (65504) nor becomes subnormal (2^-14). The contract, and predict.h, treat
     * the call as one on this type. */
    enum rf_dtype wire_dtype;

    /* For calls on tensors: */
    struct rf_point after; /* the operation starts once this point is reached */
    /* Not NULL: the call returns at once, and *done is the point at which the operation has ended,
     * even after an error. The next call on the communicator returns that error. */
    struct rf_point *done;

    /* Not NULL: the call returns at once, and *request tells whether the operation has ended, and
     * its status. Until then the buffers must stay valid; counts and strings are copied. For
     * collectives, sends and receives. (all_to_all with counts still blocks to exchange them.) */
    struct rf_request **request;
};

/* ---- collectives on host memory -------------------------------------------------------------- */

/* Without opts->request every call blocks until this rank's part is complete: then out is valid,
 * and in may be reused. opts may be NULL. A count of 0 is allowed; such a call only compares
 * contracts, and does not otherwise synchronise. In place: all_reduce allows in == out. all_gather
 * allows in to be this rank's piece of out, and reduce_scatter out to be this rank's piece of in.
 * Otherwise in and out must not overlap. Errors: RF_EINVAL, RF_EMISMATCH, RF_EPEER, RF_ETIMEOUT,
 * RF_EABORT, RF_ENET. */

/* in, out: count elements. Every rank gets the reduction of all inputs. */
RF_API int rf_all_reduce(struct rf_comm *comm, const void *in, void *out, size_t count,
                         enum rf_dtype dtype, enum rf_redop redop, const struct rf_coll_opts *opts);

/* in: count * size elements. out: count elements, piece `rank` of the reduction. */
RF_API int rf_reduce_scatter(struct rf_comm *comm, const void *in, void *out, size_t count,
                             enum rf_dtype dtype, enum rf_redop redop,
                             const struct rf_coll_opts *opts);

/* in: count elements. out: count * size elements, in rank order. */
RF_API int rf_all_gather(struct rf_comm *comm, const void *in, void *out, size_t count,
                         enum rf_dtype dtype, const struct rf_coll_opts *opts);

/* buffer: count elements; the root's are copied to all ranks. */
RF_API int rf_broadcast(struct rf_comm *comm, void *buffer, size_t count, enum rf_dtype dtype,
                        int root, const struct rf_coll_opts *opts);

/* out: count elements on the root. Other ranks may pass NULL. The root may pass in == out. */
RF_API int rf_reduce(struct rf_comm *comm, const void *in, void *out, size_t count,
                     enum rf_dtype dtype, enum rf_redop redop, int root,
                     const struct rf_coll_opts *opts);

/* in: count elements. out: count * size elements in rank order, on the root; other ranks may pass
 * NULL. The root's in may be its own piece of out. */
RF_API int rf_gather(struct rf_comm *comm, const void *in, void *out, size_t count,
                     enum rf_dtype dtype, int root, const struct rf_coll_opts *opts);

/* in: count * size elements in rank order, on the root; other ranks may pass NULL. out: count
 * elements. The root's out may be its own piece of in. */
RF_API int rf_scatter(struct rf_comm *comm, const void *in, void *out, size_t count,
                      enum rf_dtype dtype, int root, const struct rf_coll_opts *opts);

/* in, out: count * size elements. Piece r of in goes to rank r; piece r of out comes from rank r.
 * in and out must not overlap. */
RF_API int rf_all_to_all(struct rf_comm *comm, const void *in, void *out, size_t count,
                         enum rf_dtype dtype, const struct rf_coll_opts *opts);

/* Blocks until all ranks have called it. */
RF_API int rf_barrier(struct rf_comm *comm, const struct rf_coll_opts *opts);

/* ---- any collective, as data ----------------------------------------------------------------- */

/* A call as `rank` makes it. Zero is the default of every field but op and ranks. Pointers must
 * stay valid while a function reads them. */
struct rf_coll_desc {
    enum rf_coll_op op;
    int rank, ranks;
    size_t count; /* elements, as in the call; ignored if there are counts */
    enum rf_dtype dtype;
    enum rf_redop redop;
    enum rf_order order; /* of sums over micro-batches always RF_ORDER_TREE */

    /* [ranks] Elements of each rank, for all_gather, reduce_scatter, gather, scatter, all_to_all
     * and the sums over micro-batches in pieces. NULL: `count` for each. For all_to_all, counts is
     * what this rank sends to each rank, and recv_counts what each rank sends to it; both are
     * needed. */
    const size_t *counts, *recv_counts;

    /* The root of a broadcast, reduce, gather or scatter; the peer of a send or recv (of a send to
     * itself, this rank: IN is copied to OUT). */
    int root;

    /* Sums over micro-batches (tree_order.h). RF_COLL_FOREST_...: the forest, and the elements
     * between parts (0: count). RF_COLL_PREFIX_...: the leaves, and which round. */
    const struct rf_forest *forest;
    size_t stride;
    int leaves, round;

    /* [ranks] The host of each rank. Hosts are numbered from 0 in the order of their first ranks.
     * NULL: all ranks are on one host. */
    const int *hosts;

    /* Ranks can read and write each other's buffers, as on one host with memory of rf_comm_alloc.
     */
    bool shared;

    /* Bytes of a segment of a long message, and of a window of a long call (docs/collectives.md).
     * 0: 256 KiB and 4 MiB, as in a communicator. SIZE_MAX: no segments, no windows. */
    size_t segment_bytes, window_bytes;

    /* Set by the library; ignored elsewhere. */
    const struct rf_coll_model *model; /* by which to choose; NULL: by size */
    int most_parts;  /* rf_forest_most_parts of a forest that has been checked; 0: not known */
    bool is_window;  /* part of a call of several windows, whose pieces are apart from each other */
    unsigned staged; /* RF_STAGED_*: in or out is staging memory; messages are the same */
};

/* The same calls as above from a description, which predict.h can tell the cost of, and the only
 * ones with a count for each rank: equal on all ranks; any may be 0. Pieces follow each other
 * without gaps, in rank order. For all_to_all with counts the ranks exchange them first, which
 * costs one round of short messages; if a rank's count differs from its peer's, all ranks get
 * RF_EMISMATCH.
 *   Used are op, count, dtype, redop, counts, recv_counts and root. order is that of opts. rank and
 * ranks are 0, or those of this rank in comm; what belongs to sums over micro-batches
 * (tree_order.h) or to a prediction alone is 0. in, out: as in the call of this operation; of a
 * broadcast both are the buffer. Errors: as above. */
RF_API int rf_collective(struct rf_comm *comm, const void *in, void *out,
                         const struct rf_coll_desc *desc, const struct rf_coll_opts *opts);

/* ---- point to point -------------------------------------------------------------------------- */

/* Messages match by peer and tag. Messages of one sender with equal tags arrive in order. tag:
 * 0..1023. Sends and receives are not part of the order of collectives: ranks may call them in
 * different orders. If count or dtype of a receive differs from the send, both ranks get
 * RF_EMISMATCH. peer may be the rank itself in rf_sendrecv, in a group, and with opts->request.
 * Blocking, unless opts->request is given. */

RF_API int rf_send(struct rf_comm *comm, const void *buffer, size_t count, enum rf_dtype dtype,
                   int peer, int tag, const struct rf_coll_opts *opts);

RF_API int rf_recv(struct rf_comm *comm, void *buffer, size_t count, enum rf_dtype dtype, int peer,
                   int tag, const struct rf_coll_opts *opts);

struct rf_sendrecv_args {
    const void *send; /* send_count elements to rank dst */
    size_t send_count;
    int dst;
    void *recv; /* recv_count elements from rank src */
    size_t recv_count;
    int src;
    enum rf_dtype dtype;
    int tag;
};

/* A send and a receive at once, so that two ranks can exchange without a deadlock. */
RF_API int rf_sendrecv(struct rf_comm *comm, const struct rf_sendrecv_args *args,
                       const struct rf_coll_opts *opts);

/* ---- groups of calls ------------------------------------------------------------------------- */

/* Between rf_group_start and rf_group_end, calls on host memory are checked and recorded, and
 * return at once. Groups nest; the outermost rf_group_end runs the calls, and blocks until all have
 * ended: first all sends and receives at the same time, so that neighbours may exchange in any
 * order; then the collectives in the order of the calls. Buffers must stay valid until then. Other
 * ranks need no group: the messages are the same. Every start needs its end. A rank may send to
 * itself what it receives in the same group. Either both calls have a request, or none has. A call
 * that returns an error is not part of the group. rf_group_end returns the first error, and the
 * communicator has failed then, as after any call.
 *   A call with a request starts with the others; *request is valid when the call returns, and
 * rf_group_end does not wait for it.
 *   Not allowed in a group (RF_EINVAL): calls on tensors, all_to_all with counts, split, shrink.
 */
RF_API int rf_group_start(struct rf_comm *comm);

RF_API int rf_group_end(struct rf_comm *comm);

/* ---- collectives on device tensors ----------------------------------------------------------- */

/* As the calls on host memory; element count and type are those of the tensors. Device memory that
 * the host can map is sent and received in place. Other memory goes through a few chunks of staging
 * memory; copies of some chunks overlap with messages of others. Ranks may differ in the kind of
 * memory, and may mix these calls with those on host memory. With opts->done or opts->request a
 * call is asynchronous. Points of collectives are reached in the order of the calls. A thread of
 * the library runs asynchronous operations; it exists only while any are in progress. */

RF_API int rf_all_reduce_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                enum rf_redop redop, const struct rf_coll_opts *opts);

RF_API int rf_reduce_scatter_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                    enum rf_redop redop, const struct rf_coll_opts *opts);

RF_API int rf_all_gather_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                const struct rf_coll_opts *opts);

RF_API int rf_broadcast_tensor(struct rf_comm *comm, struct rf_tensor tensor, int root,
                               const struct rf_coll_opts *opts);

/* in and out have one piece of equal size for each rank, and must not overlap. */
RF_API int rf_all_to_all_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                const struct rf_coll_opts *opts);

/* Any collective from a description, as rf_collective. desc: count and dtype are 0, as the tensors
 * have them. The number of elements of `in` and `out` is that of the call; with a count for each
 * rank it may be larger. A tensor that only the root needs, or of which the call uses no element,
 * may have a NULL buffer; its type is compared only if both tensors have a buffer. (all_to_all with
 * counts blocks to exchange them.) */
RF_API int rf_collective_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                                const struct rf_coll_desc *desc, const struct rf_coll_opts *opts);

/* As rf_send and rf_recv, and match these. The tensor may have any shape; with 0 elements it may
 * have a NULL buffer. Until the call has ended, a sent tensor must not change, and a received one
 * must not be used. The call starts when opts->after is reached.
 *   With opts->done or opts->request it is asynchronous. Then it waits only for calls in the same
 * direction with the same peer and tag, which match in the order of the calls. So neighbours may
 * all send first, and each point or request tells about its own call. peer may be the rank itself;
 * such a message is kept in host memory until it is received. Memory that the host cannot map goes
 * through staging memory (RF_CATEGORY_COMM) in chunks of 1 MiB: at most 8 MiB for sends and 8 MiB
 * for receives on each device. Errors: RF_EINVAL, RF_ENOMEM, those of rf_send. The next call on
 * comm returns the error of a call with opts->done. */
RF_API int rf_send_tensor(struct rf_comm *comm, struct rf_tensor tensor, int peer, int tag,
                          const struct rf_coll_opts *opts);

RF_API int rf_recv_tensor(struct rf_comm *comm, struct rf_tensor tensor, int peer, int tag,
                          const struct rf_coll_opts *opts);

/* Waits for all asynchronous operations of this rank; returns their first error. */
RF_API int rf_comm_wait(struct rf_comm *comm);

/* RF_OK, or the reason why the communicator has failed. Does not block, and may be called while
 * asynchronous operations are in progress. Reads the control messages of the peers, so that it
 * detects a death without any other call. */
RF_API int rf_comm_async_error(struct rf_comm *comm);

/* ---- requests -------------------------------------------------------------------------------- */

/* Several requests may be in progress on one communicator. Each result has the same bits as if the
 * call ran alone.
 *   Collectives start in the order of the calls, together with asynchronous calls on tensors. A
 * collective waits for an earlier one if one of them writes memory that the other accesses. A short
 * collective does not wait for an earlier long one; long ones run one after the other. Sends and
 * receives run at the same time, and wait for no collective; messages between two ranks with equal
 * tags keep the order of the calls. A rank may send to itself, before or after it receives.
 *   A blocking collective returns when all earlier collectives have ended too. A blocking send or
 * receive waits for itself only. When the communicator fails, all unfinished requests fail with the
 * same error.
 *   One thread at a time uses a request. rf_comm_close ends all requests; they may still be tested,
 * waited for and freed afterwards. */

/* Does not block. If the operation has ended, *ended is true, and the return value and the error
 * text are those of the blocking call. */
RF_API int rf_request_test(struct rf_request *request, bool *ended);

/* Blocks until the operation has ended, and returns its status. timeout_s: 0 = no limit. After
 * RF_ETIMEOUT the request may be waited for again. */
RF_API int rf_request_wait(struct rf_request *request, double timeout_s);

/* Blocks until all have ended, also after an error; returns the first error in the order of the
 * array. NULL entries are skipped. */
RF_API int rf_request_wait_all(struct rf_request *const *requests, size_t count, double timeout_s);

/* Blocks until one has ended. *index is its index, and its status is returned. If all entries are
 * NULL, *index is `count`. To continue with the others, free that request and set its entry to
 * NULL. */
RF_API int rf_request_wait_any(struct rf_request *const *requests, size_t count, double timeout_s,
                               size_t *index);

/* As rf_request_wait_any, without blocking. *ended: whether one has ended; true if all are NULL. */
RF_API int rf_request_test_any(struct rf_request *const *requests, size_t count, size_t *index,
                               bool *ended);

/* Frees the request. An operation that has not ended continues. NULL is allowed. */
RF_EXPORT void rf_request_free(struct rf_request *request);

#ifdef __cplusplus
}
#endif
#endif
