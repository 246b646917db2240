/* SPDX-License-Identifier: MIT
 *
 * The communicators that a rank has of one job.
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
    uint32_t number;         /* the highest that one of them has had; under lock */
    struct rf_comm *first;   /* under lock */
    atomic_ullong thread;    /* the only one that has called any of them; 0: several have */
    atomic_ullong questions; /* questions of other ranks so far */
};
/* A communicator's place in its family. */
struct rf_family_membership {
    struct rf_family *family;
    struct rf_comm *next; /* in the list of the family */
    uint32_t number;      /* in the family: the same on all ranks */
    bool has_groups;      /* communicators were split off this one */
};

/* Puts a communicator into its parent's family; NULL: into a new one. */
RF_MUST_CHECK int rf_family_join(struct rf_comm *comm, const struct rf_comm *parent);
/* It is complete: others of the family may look after it. */
void rf_family_add(struct rf_comm *comm);
/* It is about to go: nobody looks after it, or says anything through it, any more. */
void rf_family_remove(struct rf_comm *comm);
void rf_family_leave(struct rf_comm *comm); /* may never have joined */
/* A number that none of this rank's has had; then, what all its ranks have settled on. */
uint32_t rf_family_offer(const struct rf_comm *comm);
void rf_family_number(struct rf_comm *comm, uint32_t number);
/* Another one of this rank's that no call is in; NULL: there is none. Until the release no other
 * thread gets in. */
struct rf_comm *rf_family_find(const struct rf_comm *comm, uint32_t number);
void rf_family_release(const struct rf_comm *comm);
/* Another thread calls: from now on nobody looks after what others may be using. */
void rf_family_share(struct rf_family *family);
static inline void rf_family_enter(struct rf_family *family)
{
    const uint64_t thread = atomic_load_explicit(&family->thread, memory_order_relaxed);
    if (thread != 0 && thread != rf_thread_number())
        rf_family_share(family);
}
/* No call is in it, and no worker has it. */
bool rf_comm_is_idle(const struct rf_comm *comm);

#endif
