/* SPDX-License-Identifier: MIT
 *
 * A communicator's queue of asynchronous calls, for its files: async.c (its owner adds tasks, and
 * waits), worker.c (a thread takes them) and inflight.c (collectives there).
 */
#ifndef RF_COMM_WORKER_H
#define RF_COMM_WORKER_H

#include <pthread.h>
#include <ringforge/ringforge.h>

#include "p2p.h"

enum { RF_ASYNC_DEVICES = 16 };

struct rf_task_list {
    struct rf_task *first, **end;
};

static inline void rf_task_append(struct rf_task_list *list, struct rf_task *task)
{
    task->next = NULL;
    *list->end = task;
    list->end = &task->next;
}

/* Removes the task that *link points to. */
static inline struct rf_task *rf_task_remove(struct rf_task_list *list, struct rf_task **link)
{
    struct rf_task *task = *link;
    *link = task->next;
    if (!task->next)
        list->end = link;
    return task;
}

/* A timeline on which this queue signals the ends of calls. */
struct rf_signal_timeline {
    struct rf_device *device;
    struct rf_timeline *timeline;
    uint64_t value; /* of the last task queued */
    struct rf_signal_timeline *next;
};

struct rf_async {
    struct rf_comm *comm;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rf_task_list submitted; /* not yet seen by the worker; under lock */
    atomic_int submitted_count;
    atomic_int outstanding;            /* number of unfinished tasks; changed under lock */
    int outstanding_collectives;       /* under lock */
    atomic_int unrecorded_count;       /* number of collectives that are not recorded yet */
    atomic_int status;                 /* of the first task that failed */
    struct rf_request *failed_request; /* the first that ended with an error; NULL: none */
    bool failure_was_read;             /* rf_async_unreported has been called */
    bool running, joinable;
    pthread_t thread;

    /* Collectives end in the order of the calls: one timeline for each device. Sends and receives
     * end in any order: one timeline for each running one. */
    struct rf_signal_timeline collective_timelines[RF_ASYNC_DEVICES];
    struct rf_signal_timeline *p2p_timelines;

    /* For the worker only: */
    struct rf_task_list unrecorded;  /* collectives that are not recorded yet */
    struct rf_task_list inflight;    /* recorded ones, oldest first */
    struct rf_task_list held_p2p;    /* sends and receives that must not begin yet */
    struct rf_task_list running_p2p; /* those that have begun */
    bool new_self_messages;          /* running_p2p has new messages of this rank to itself */
    int inflight_count;
    int ended[2];         /* in this turn: collectives; sends and receives */
    uint64_t ended_total; /* in all turns; counts as activity */
    struct rf_wait_monitor backoff;
};

/* The thread's function. Its argument is the rf_async. */
void *rf_worker(void *argument);

/* Ends and frees a task that is in no list. rc < 0: this thread's last error has the reason. */
void rf_task_end(struct rf_async *async, struct rf_task *task, int rc);

/* ---- inflight.c: a negative status says that the communicator has failed --------------------- */

/* Records queued collectives, as many as may be in flight. */
RF_MUST_CHECK int rf_inflight_record(struct rf_async *async);

/* One turn of all in flight. *activity grows with their activity. *any: one of them runs. */
RF_MUST_CHECK int rf_inflight_advance(struct rf_async *async, uint64_t *activity, bool *any);

/* Completes a recorded collective that no longer runs. */
void rf_inflight_complete(struct rf_comm *comm, struct rf_task *task, int rc);

/* 1: the point is reached; 0: not yet; negative: its device has failed. */
RF_MUST_CHECK int rf_after_reached(struct rf_point after);

#endif
