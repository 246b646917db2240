/* SPDX-License-Identifier: MIT
 *
 * A family: a rank's communicators of one job, which are the first one and those that were split
 * off it or survived it.
 */
#ifndef RF_COMM_FAMILY_H
#define RF_COMM_FAMILY_H

#include <pthread.h>
#include <stdatomic.h>

#include "../base/base.h"

struct rf_comm;

struct rf_family {
    pthread_mutex_t lock;
    int holders;
    uint32_t number;            /* the highest number of its communicators; under lock */
    struct rf_comm *first;      /* under lock */
    atomic_ullong thread;       /* the only thread that has called any of them; 0: several have */
    atomic_ullong wait_queries; /* received so far (wait_query.c) */
};

/* A communicator's place in its family. */
struct rf_family_membership {
    struct rf_family *family;
    struct rf_comm *next; /* in the list of the family */
    uint32_t number;      /* within the family: the same on all ranks */
    bool has_groups;      /* communicators were split off from this one */
};

/* Adds a communicator to its parent's family; parent NULL: to a new one. */
RF_MUST_CHECK int rf_family_join(struct rf_comm *comm, const struct rf_comm *parent);

/* The communicator is complete: waits on others of the family handle its events from now on. */
void rf_family_add(struct rf_comm *comm);

/* The communicator is about to be freed: no other one uses it any longer. */
void rf_family_remove(struct rf_comm *comm);

/* Undoes rf_family_join, which may never have been called. */
void rf_family_leave(struct rf_comm *comm);

/* A number that none of this rank's communicators has used. Each rank offers one, and all set the
 * highest by rf_family_number. */
uint32_t rf_family_offer(const struct rf_comm *comm);
void rf_family_number(struct rf_comm *comm, uint32_t number);

/* Another communicator of the family that is idle; NULL: none has this number, or it is in use.
 * Locks the family until rf_family_release, even if it returns NULL. */
struct rf_comm *rf_family_find(const struct rf_comm *comm, uint32_t number);
void rf_family_release(const struct rf_comm *comm);

/* A second thread calls: from now on a wait handles only the events of its own communicator. */
void rf_family_share(struct rf_family *family);

/* Called at the beginning of every public call. */
static inline void rf_family_enter(struct rf_family *family)
{
    const uint64_t thread = atomic_load_explicit(&family->thread, memory_order_relaxed);
    if (thread != 0 && thread != rf_thread_number())
        rf_family_share(family);
}

/* Whether no call and no worker uses it, and it has not failed. */
bool rf_comm_is_idle(const struct rf_comm *comm);

#endif
