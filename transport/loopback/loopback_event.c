/* SPDX-License-Identifier: MIT
 *
 * The queue of events of a loopback rank's control link, which the other ranks fill under the lock
 * of the world.
 */
#include "base/base.h"
#include "loopback.h"

/* Losing an event for lack of memory would turn into a hang, so it becomes an abort. */
void rf_loop_push(struct rf_loop_rank *to, int kind, int from, const void *payload, size_t bytes,
                  const char *text)
{
    if (to->closed || !to->events_end)
        return;
    if (kind == RF_EVENT_MESSAGE)
        rf_control_call_observer(&to->control, payload, bytes);
    struct rf_loop_event *item = rf_alloc(sizeof(*item));
    if (!item) {
        to->aborted = true;
    } else {
        item->event.kind = kind;
        item->event.rank = from;
        item->event.bytes = (uint32_t)bytes;
        if (bytes > 0)
            memcpy(item->event.payload, payload, bytes);
        if (text)
            snprintf(item->event.text, sizeof(item->event.text), "%s", text);
        *to->events_end = item;
        to->events_end = &item->next;
    }
    __atomic_store_n(&to->control.pending, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&to->world->changed);
}

void rf_loop_push_to_others(struct rf_loopback *world, int kind, int from, const void *payload,
                            size_t bytes, const char *text)
{
    for (int rank = 0; rank < world->size; rank++)
        if (rank != from)
            rf_loop_push(&world->ranks[rank], kind, from, payload, bytes, text);
}

void rf_loop_report_death(struct rf_loopback *world, int rank, const char *text)
{
    pthread_mutex_lock(&world->lock);
    world->ranks[rank].dead = true;
    rf_loop_push_to_others(world, RF_EVENT_DEAD, rank, NULL, 0, text);
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
}

void rf_loop_drop_events(struct rf_loop_rank *self)
{
    while (self->events) {
        struct rf_loop_event *item = self->events;
        self->events = item->next;
        rf_free(item);
    }
    self->events_end = &self->events;
}
