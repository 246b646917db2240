/* SPDX-License-Identifier: MIT
 *
 * Queued calls: a task, the queue of an owner, requests, groups, and calls on tensors.
 */
#ifndef RF_COMM_TASK_H
#define RF_COMM_TASK_H

#include "communicator.h"
#include "wait.h"

/* ---- async.c: the queue, for the owner; worker.c: who works it off ----------------------------
 */

/* Where a call reads or writes: in the host's memory, or in a buffer out of its reach. */
struct rf_extent {
    const void *space; /* NULL: the host's */
    uint64_t begin, end;
};

/* A call on tensors, or anything that is queued. Owned by its queue then; what it points to is
 * copied but for data. */
struct rf_task {
    struct rf_task *next;
    struct rf_call call; /* of tensors: in and out are filled when it runs */
    struct rf_p2p_op
        *p2p_ops; /* of sends and receives, of whose call only the timeout is set; NULL */
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
    void *copies; /* what forest and counts point to */

    /* The worker's: */
    enum { RF_TASK_QUEUED, RF_TASK_RECORDED, RF_TASK_RUNNING, RF_TASK_ENDED } state;
    struct rf_call plain; /* what is run */
    struct rf_extent reads, writes;
    const struct rf_cached *cached;
    struct rf_call_record record;
    struct rf_exec *exec;
    struct rf_wait_monitor monitor;
    bool awaits_begun;
    bool *blocked; /* [size] who has not yet said that it is ready; NULL: it does not matter */
    uint64_t start_ns;
};
int rf_async_create(struct rf_comm *comm, struct rf_async **out);
void rf_async_destroy(struct rf_async *async); /* after rf_async_drain */
/* Takes a copy of the job; *done is when it has finished: of a collective, and all before it. */
RF_MUST_CHECK int rf_async_push(struct rf_comm *comm, const struct rf_task *job,
                                struct rf_device *device, struct rf_point *done);
/* The same, with a request. */
RF_MUST_CHECK int rf_async_push_request(struct rf_comm *comm, const struct rf_task *job,
                                        struct rf_request **request);
/* Takes the job itself, which has its request: that is ended in any case. */
void rf_async_push_task(struct rf_comm *comm, struct rf_task *job);
/* Blocks until it has ended: for a caller that comes while the worker has the communicator. After a
 * collective all that were started before it have ended, too. */
RF_MUST_CHECK int rf_async_run(struct rf_comm *comm, const struct rf_task *job);
/* A copy of its own of everything that a job points to but data. */
RF_MUST_CHECK int rf_task_copy(const struct rf_comm *comm, const struct rf_task *job,
                               struct rf_task **out);
void rf_task_free(struct rf_task *job);
/* What the worker has failed with; 0: it has not. Any time. */
int rf_async_status(const struct rf_async *async);
bool rf_async_busy(const struct rf_async *async);
/* Whether the worker's failure has become the error of a request that nobody has looked at yet;
 * asked once. */
bool rf_async_unreported(struct rf_async *async);
/* Collectives that are queued and not yet on record. */
uint64_t rf_async_queued(const struct rf_async *async);
/* Adds the peers of what the worker waits in to `ranks`, oldest first, and returns how many there
 * are then, at most `room`. For the worker, or while nothing is outstanding. */
int rf_async_waits(const struct rf_async *async, int *ranks, int count, int room);
/* Waits until nothing is outstanding; timeout_s 0 = for ever. False: it still is. */
bool rf_async_drain(struct rf_async *async, double timeout_s);

/* flow_control.c: who may be sent messages of a collective that has overtaken others
 * -------------------
 */

/* A peer asks to be told when this rank can take in all messages of a collective; or when it runs.
 */
RF_MUST_CHECK int rf_flow_control_request_received(struct rf_comm *comm, int peer,
                                                   uint64_t sequence, bool begun);
/* Tells those who may know by now. */
RF_MUST_CHECK int rf_flow_control_reply(struct rf_comm *comm);
/* Asks all whom the task sends to; until they answer they are blocked. The oldest collective only
 * asks where a message that came too early would stop others, and whether the peers have begun. */
RF_MUST_CHECK int rf_flow_control_request(struct rf_comm *comm, struct rf_task *task, bool oldest);
/* The peer's answer. */
void rf_flow_control_reply_received(struct rf_comm *comm, int peer, uint64_t sequence);
/* The worker's collective with this number; NULL: it is not on record, or has ended. */
struct rf_task *rf_async_find(struct rf_async *async, uint64_t sequence);

/* request.c. Held twice: by the caller, until rf_request_free, and by the worker, until it ends it.
 */
RF_MUST_CHECK int rf_request_create(struct rf_request **out);
void rf_request_end(struct rf_request *request, int status); /* < 0: this thread's last error */
/* Until another rf_request_free. */
void rf_request_hold(struct rf_request *request);
/* Whether its caller has been given its error. */
bool rf_request_was_reported(struct rf_request *request);

/* ---- tensor_calls.c, comm_staging.c ---------------------------------------------------------- */

/* Checks a call on tensors (op, count, redop, root, forest and the tensors are set), then runs or
 * queues it. */
RF_MUST_CHECK int rf_task_start(struct rf_comm *comm, struct rf_task *job,
                                const struct rf_coll_opts *opts);
/* The checks alone. job->call has its type and the options when it returns. */
RF_MUST_CHECK int rf_task_check(struct rf_comm *comm, struct rf_task *job,
                                const struct rf_coll_opts *opts);
/* The device of the call's tensors; NULL: it has none. */
struct rf_device *rf_task_device(const struct rf_task *job);
/* Sets job->plain, with its buffers and what of it must be staged. */
void rf_task_place(const struct rf_comm *comm, struct rf_task *job);
/* What rf_staging_begin does, for job->plain. */
RF_MUST_CHECK int rf_task_stage(struct rf_comm *comm, struct rf_task *job);
/* Blocks until the point is reached. Negative: its device or the communicator has failed. */
RF_MUST_CHECK int rf_comm_wait_after(struct rf_comm *comm, struct rf_point after);
/* Waits for job->after and runs, by way of staging memory where the host cannot reach a tensor. */
RF_MUST_CHECK int rf_task_run(struct rf_comm *comm, struct rf_task *job);

/* ---- group.c: calls that wait for the end of their group ------------------------------------- */

RF_MUST_CHECK int rf_group_add_p2p_ops(struct rf_comm *comm, const struct rf_p2p_op *p2p_ops,
                                       size_t count, double timeout_s);
/* With a request of its own. */
RF_MUST_CHECK int rf_group_add_task(struct rf_comm *comm, const struct rf_task *job,
                                    struct rf_request **request);
/* request may be NULL. */
RF_MUST_CHECK int rf_group_add_call(struct rf_comm *comm, const struct rf_call *call,
                                    struct rf_request **request);
/* For what cannot be in one. */
RF_MUST_CHECK int rf_group_refuse(const struct rf_comm *comm, const char *what);
void rf_group_destroy(struct rf_group *group);

#endif
