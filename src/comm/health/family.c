/* SPDX-License-Identifier: MIT
 *
 * The communicators of one rank in one job. While a thread waits in a call on one of them, no call
 * handles the events of the others, and an event there may be the reason for the wait (deadlock.c).
 * So the waiting thread handles them itself (wait_monitor.c), as long as no other thread of this
 * rank has called any of them.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../family.h"
#include "../task.h"

int rf_family_join(struct rf_comm *comm, const struct rf_comm *parent)
{
    struct rf_family *family = parent ? parent->membership.family : rf_alloc(sizeof(*family));
    if (!family)
        return rf_fail(RF_ENOMEM, "no memory for a communicator");
    if (!parent) {
        pthread_mutexattr_t recursive;
        pthread_mutexattr_init(&recursive);
        pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
        pthread_mutex_init(&family->lock, &recursive);
        pthread_mutexattr_destroy(&recursive);
        atomic_init(&family->thread, rf_thread_number());
        atomic_init(&family->wait_queries, 0);
    }
    pthread_mutex_lock(&family->lock);
    family->holders++;
    pthread_mutex_unlock(&family->lock);
    comm->membership.family = family;
    return 0;
}

void rf_family_add(struct rf_comm *comm)
{
    struct rf_family *family = comm->membership.family;
    pthread_mutex_lock(&family->lock);
    comm->membership.next = family->first;
    family->first = comm;
    comm->wait.answered_queries = atomic_load(&family->wait_queries);
    pthread_mutex_unlock(&family->lock);
    rf_control_observe(comm->links.control, rf_wait_query_received, comm);
}

void rf_family_remove(struct rf_comm *comm)
{
    struct rf_family *family = comm->membership.family;
    pthread_mutex_lock(&family->lock);
    for (struct rf_comm **link = &family->first; *link; link = &(*link)->membership.next)
        if (*link == comm) {
            *link = comm->membership.next;
            break;
        }
    pthread_mutex_unlock(&family->lock);
}

void rf_family_leave(struct rf_comm *comm)
{
    struct rf_family *family = comm->membership.family;
    if (!family)
        return;
    pthread_mutex_lock(&family->lock);
    const bool last = --family->holders == 0;
    pthread_mutex_unlock(&family->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&family->lock);
    rf_free(family);
}

uint32_t rf_family_offer(const struct rf_comm *comm)
{
    struct rf_family *family = comm->membership.family;
    pthread_mutex_lock(&family->lock);
    const uint32_t number = family->number + 1;
    pthread_mutex_unlock(&family->lock);
    return number;
}

void rf_family_number(struct rf_comm *comm, uint32_t number)
{
    struct rf_family *family = comm->membership.family;
    comm->membership.number = number;
    pthread_mutex_lock(&family->lock);
    family->number = number > family->number ? number : family->number;
    pthread_mutex_unlock(&family->lock);
}

void rf_family_share(struct rf_family *family)
{
    pthread_mutex_lock(&family->lock); /* waits while the other thread handles events */
    atomic_store(&family->thread, 0);
    pthread_mutex_unlock(&family->lock);
}

bool rf_comm_is_idle(const struct rf_comm *comm)
{
    return !comm->failure.failed && !comm->history.running && !rf_async_busy(comm->async);
}

struct rf_comm *rf_family_find(const struct rf_comm *comm, uint32_t number)
{
    pthread_mutex_lock(&comm->membership.family->lock);
    struct rf_comm *found = comm->membership.family->first;
    while (found && found->membership.number != number)
        found = found->membership.next;
    const bool alone = atomic_load(&comm->membership.family->thread) == rf_thread_number();
    return found && found != comm && alone && rf_comm_is_idle(found) ? found : NULL;
}

void rf_family_release(const struct rf_comm *comm)
{
    pthread_mutex_unlock(&comm->membership.family->lock);
}
