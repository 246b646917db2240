/* SPDX-License-Identifier: MIT
 *
 * Queued calls: a task, the queue of an owner, requests, groups, and calls on tensors.
 */
#ifndef RF_COMM_TASK_H
#define RF_COMM_TASK_H

#include "communicator.h"
#include "wait.h"

/* A range of memory that a call reads or writes. */
struct rf_extent {
    const void *space; /* a buffer that the host cannot reach; NULL: host memory */
    uint64_t begin, end;
};

/* A call on tensors, or any queued call. The queue owns a copy of the task and of everything that
 * it points to, except the data. */
struct rf_task {
    struct rf_task *next;
    struct rf_call call;       /* on tensors: in and out are set when it runs */
    struct rf_p2p_op *p2p_ops; /* sends and receives, whose call has only a timeout; or NULL */
    size_t p2p_op_count;
    bool on_tensors;
    struct rf_tensor in, out;
    struct rf_point after;
    struct rf_timeline *done; /* NULL: it has a request */
    uint64_t done_value;
    struct rf_request *request;
    bool blocking; /* its caller waits for it */
    char label[40], algorithm[32];
    struct rf_forest forest;
    void *copies; /* of counts and of the forest's leaves */

    /* For the worker only: */
    enum { RF_TASK_QUEUED, RF_TASK_RECORDED, RF_TASK_RUNNING, RF_TASK_ENDED } state;
    struct rf_call plain; /* the call that runs */
    struct rf_extent reads, writes;
    struct rf_cached *cached;
    struct rf_call_record record;
    struct rf_exec *exec;
    struct rf_wait_monitor monitor;
    bool awaits_begun; /* the peers have been asked whether they have begun (flow_control.c) */
    bool *blocked;     /* [size] peers that have not replied yet; NULL: no requests were sent */
    uint64_t start_ns;
};

/* ---- task.c ---------------------------------------------------------------------------------- */

/* Copies a task and everything that it points to, except the data. */
RF_MUST_CHECK int rf_task_copy(const struct rf_comm *comm, const struct rf_task *job,
                               struct rf_task **out);
void rf_task_free(struct rf_task *job);

/* ---- async.c: queueing ----------------------------------------------------------------------- */

/* Queues a copy of the task. *done is reached when it has ended; for a collective, when all before
 * it have ended, too. */
RF_MUST_CHECK int rf_async_push(struct rf_comm *comm, const struct rf_task *job,
                                struct rf_device *device, struct rf_point *done);

/* Queues a copy of the task, with a new request. */
RF_MUST_CHECK int rf_async_push_request(struct rf_comm *comm, const struct rf_task *job,
                                        struct rf_request **request);

/* Queues the task itself, which has its request. Ends the request in any case. */
void rf_async_push_task(struct rf_comm *comm, struct rf_task *job);

/* Queues the task and blocks until it has ended: for a call while the worker is busy. When a
 * collective returns, all earlier ones have ended, too. */
RF_MUST_CHECK int rf_async_run(struct rf_comm *comm, const struct rf_task *job);

/* ---- task_queue.c ---------------------------------------------------------------------------- */

int rf_async_create(struct rf_comm *comm, struct rf_async **out);
void rf_async_destroy(struct rf_async *async); /* after rf_async_drain */

/* The status with which the worker has failed, or 0. Any time. */
int rf_async_status(const struct rf_async *async);
bool rf_async_busy(const struct rf_async *async);

/* Whether the worker's failure is the error of a request that has not been read. True once. */
bool rf_async_unreported(struct rf_async *async);

/* Number of collectives that are queued and not yet recorded. */
uint64_t rf_async_queued(const struct rf_async *async);

/* Appends the peers that the worker waits for to `ranks`, oldest first. Returns the new count, at
 * most `capacity`. For the worker, or while nothing is outstanding. */
int rf_async_waits(const struct rf_async *async, int *ranks, int count, int capacity);

/* Waits until nothing is outstanding; timeout_s 0: no limit. False: work is outstanding. */
bool rf_async_drain(struct rf_async *async, double timeout_s);

/* The worker's collective with this number; NULL: not recorded, or ended. */
struct rf_task *rf_async_find(struct rf_async *async, uint64_t sequence);

/* ---- flow_control.c: collectives that overtake others ---------------------------------------- */

/* Sends a request to each peer that the task sends to, and blocks sending to the peer until it
 * replies. The oldest collective does so only on transports where a message without a receive
 * blocks others, and only waits until the peers have begun. */
RF_MUST_CHECK int rf_flow_control_request(struct rf_comm *comm, struct rf_task *task, bool oldest);

/* A peer waits until this rank has posted all receives of a collective; begun: until it has begun
 * it. */
RF_MUST_CHECK int rf_flow_control_request_received(struct rf_comm *comm, int peer,
                                                   uint64_t sequence, bool begun);

/* Replies to requests whose collectives are ready. */
RF_MUST_CHECK int rf_flow_control_reply(struct rf_comm *comm);
void rf_flow_control_reply_received(struct rf_comm *comm, int peer, uint64_t sequence);

/* ---- request.c ------------------------------------------------------------------------------- */

/* A request has two holders: the caller, until rf_request_free, and the worker, until it ends the
 * request. */
RF_MUST_CHECK int rf_request_create(struct rf_request **out);
void rf_request_end(struct rf_request *request, int status); /* < 0: this thread's last error */

/* Adds a holder, until another rf_request_free. */
void rf_request_hold(struct rf_request *request);

/* Whether the caller knows its error. */
bool rf_request_was_reported(struct rf_request *request);

/* ---- tensor_calls.c -------------------------------------------------------------------------- */

/* Checks a call on tensors, then runs or queues it. Its description and tensors are set. */
RF_MUST_CHECK int rf_task_start(struct rf_comm *comm, struct rf_task *job,
                                const struct rf_coll_opts *opts);

/* Only checks the call, and sets the type and the options of job->call. */
RF_MUST_CHECK int rf_task_check(struct rf_comm *comm, struct rf_task *job,
                                const struct rf_coll_opts *opts);

/* ---- tensor_task.c --------------------------------------------------------------------------- */

/* The device of the call's tensors; NULL: none. */
struct rf_device *rf_task_device(const struct rf_task *job);

/* Sets job->plain: its buffers, and which of them must be staged. */
void rf_task_prepare(const struct rf_comm *comm, struct rf_task *job);

/* rf_staging_begin for job->plain. */
RF_MUST_CHECK int rf_task_stage(struct rf_comm *comm, struct rf_task *job);

/* Blocks until the point is reached. Negative: its device or the communicator has failed. */
RF_MUST_CHECK int rf_comm_wait_after(struct rf_comm *comm, struct rf_point after);

/* Waits for job->after and runs the call, with staging memory if a tensor needs it. */
RF_MUST_CHECK int rf_task_run(struct rf_comm *comm, struct rf_task *job);

/* ---- group.c: calls that run at the end of their group --------------------------------------- */

RF_MUST_CHECK int rf_group_add_p2p_ops(struct rf_comm *comm, const struct rf_p2p_op *p2p_ops,
                                       size_t count, double timeout_s);

/* request NULL: the end of the group waits for the call. */
RF_MUST_CHECK int rf_group_add_task(struct rf_comm *comm, const struct rf_task *job,
                                    struct rf_request **request);
RF_MUST_CHECK int rf_group_add_call(struct rf_comm *comm, const struct rf_call *call,
                                    struct rf_request **request);

/* Fails inside a group: for calls that are not allowed in one. */
RF_MUST_CHECK int rf_group_refuse(const struct rf_comm *comm, const char *what);
void rf_group_destroy(struct rf_group *group);

#endif
