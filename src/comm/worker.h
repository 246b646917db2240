/* SPDX-License-Identifier: MIT
 *
 * A communicator's queue of asynchronous calls, for the files that it is made of: async.c (its
 * owner brings tasks, and waits), worker.c (a thread takes them) and inflight.c (collectives
 * there).
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

/* The one that *link points to. */
static inline struct rf_task *rf_task_remove(struct rf_task_list *list, struct rf_task **link)
{
    struct rf_task *task = *link;
    *link = task->next;
    if (!task->next)
        list->end = link;
    return task;
}

/* A timeline on which this queue signals. */
struct rf_done_row {
    struct rf_device *device;
    struct rf_timeline *timeline;
    uint64_t value; /* of the last job queued */
    struct rf_done_row *next;
};

struct rf_async {
    struct rf_comm *comm;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rf_task_list brought; /* under lock */
    atomic_int fresh;            /* in it */
    atomic_int outstanding;      /* all that has not ended; changed under lock */
    int collectives;             /* of those; under lock */
    atomic_int queued;           /* of those, not yet on record */
    atomic_int status;           /* of the first job that failed */
    struct rf_request *failed;   /* the first that ended with an error; NULL: none has */
    bool asked_failed;           /* rf_async_unreported has been */
    bool running, joinable;
    pthread_t thread;
    struct rf_done_row timelines[RF_ASYNC_DEVICES]; /* of collectives, one for each device */
    struct rf_done_row *own; /* of sends and receives, which end in any order: one for each that is
                              * under way at once */

    /* The worker's own: */
    struct rf_task_list waiting;  /* collectives that are not on record yet */
    struct rf_task_list inflight; /* those that are, oldest first */
    struct rf_task_list held;     /* sends and receives that may not begin yet */
    struct rf_task_list points;   /* those that have begun */
    bool new_own;                 /* in points: a message of this rank to itself */
    int inflight_count;
    int ended[2];     /* in this turn: collectives; sends and receives */
    uint64_t settled; /* before it: a part of what moves */
    struct rf_wait_monitor backoff;
};

/* The thread's function; its argument is the rf_async. */
void *rf_worker(void *argument);
/* Takes the task, which is in no list any more. rc < 0: this thread's last error says why. */
void rf_task_end(struct rf_async *async, struct rf_task *task, int rc);

/* ---- inflight.c; negative: the communicator has failed -----------------------------------------
 */

RF_MUST_CHECK int rf_inflight_record(struct rf_async *async);
/* One turn of all. *activity grows with what they do, *any: there is one that runs. */
RF_MUST_CHECK int rf_inflight_advance(struct rf_async *async, uint64_t *activity, bool *any);
/* Of one that is on record: it runs no more. */
void rf_inflight_complete(struct rf_comm *comm, struct rf_task *task, int rc);
/* 1: reached; 0: not yet; negative: its device has failed. */
RF_MUST_CHECK int rf_after_reached(struct rf_point after);

#endif
