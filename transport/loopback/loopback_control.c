/* SPDX-License-Identifier: MIT
 *
 * The control link between loopback ranks: gathers, events, deaths and goodbyes, under one lock of
 * the world. Not on the data path.
 */
#include <errno.h>

#include "base/base.h"
#include "loopback.h"

static struct rf_loop_rank *self_of(struct rf_control *c)
{
    return (struct rf_loop_rank *)((char *)c - offsetof(struct rf_loop_rank, control));
}

/* The first rank whose part of gather `number` is missing; -1 = none. Called with the world locked.
 */
static int missing_rank(struct rf_loopback *world, uint64_t number)
{
    for (int rank = 0; rank < world->size; rank++)
        if (world->ranks[rank].slot[number & 1].number != number)
            return rank;
    return -1;
}

static int put_part(struct rf_loop_rank *self, uint64_t number, const void *mine, size_t bytes)
{
    /* Two slots are enough: nobody begins gather n+2 before all have begun n+1, hence ended n. */
    void *data = rf_realloc(self->slot[number & 1].data, bytes ? bytes : 1);
    if (!data)
        return rf_fail(RF_ENOMEM, "loopback: no memory to gather %zu bytes", bytes);
    if (bytes > 0)
        memcpy(data, mine, bytes);
    self->slot[number & 1].data = data;
    self->slot[number & 1].bytes = bytes;
    self->slot[number & 1].number = number;
    pthread_cond_broadcast(&self->world->changed);
    return 0;
}

/* As in control_gather.c: a death is reported first, because a rank that learns of it aborts and
 * leaves. */
static int broken(const struct rf_loop_rank *self, uint64_t number)
{
    const struct rf_loopback *world = self->world;
    for (int rank = 0; rank < world->size; rank++)
        if (world->ranks[rank].dead &&
            (self->aborted || world->ranks[rank].slot[number & 1].number != number))
            return rf_fail_rank(RF_EPEER, rank, "rank %d died while the others wait for it", rank);
    if (self->aborted)
        return rf_fail(RF_EABORT, "loopback: aborted while gathering from all ranks");
    for (int rank = 0; rank < world->size; rank++)
        if (world->ranks[rank].left && world->ranks[rank].slot[number & 1].number != number)
            return rf_fail_rank(RF_EPEER, rank, "rank %d left while the others wait for it", rank);
    return 0;
}

static int wait_for_parts(struct rf_loop_rank *self, uint64_t number, double timeout_s)
{
    struct rf_loopback *world = self->world;
    const uint64_t until_ns = rf_after_s(timeout_s);
    int missing;
    while ((missing = missing_rank(world, number)) >= 0) {
        struct rf_loop_rank *late = &world->ranks[missing];
        if (self->dead)
            return rf_fail_rank(RF_ENET, self->control.rank,
                                "rank %d was killed by the fault injector", self->control.rank);
        RETURN_IF_ERROR(broken(self, number));
        if (!rf_cond_wait(&world->changed, &world->lock, until_ns) &&
            late->slot[number & 1].number != number)
            return rf_fail_rank(RF_ETIMEOUT, missing, "rank %d did not come within %.3g s", missing,
                                timeout_s);
    }
    return 0;
}

static int gather_locked(struct rf_loop_rank *self, const void *mine, size_t bytes, void *all,
                         double timeout_s)
{
    struct rf_loopback *world = self->world;
    uint64_t number = ++self->gathers;
    RETURN_IF_ERROR(put_part(self, number, mine, bytes));
    RETURN_IF_ERROR(wait_for_parts(self, number, timeout_s));
    for (int rank = 0; rank < world->size; rank++) {
        size_t theirs = world->ranks[rank].slot[number & 1].bytes;
        if (theirs != bytes)
            return rf_fail_rank(RF_EMISMATCH, rank, "rank %d gathers %zu bytes, rank %d %zu",
                                self->control.rank, bytes, rank, theirs);
        if (bytes > 0)
            memcpy((char *)all + (size_t)rank * bytes, world->ranks[rank].slot[number & 1].data,
                   bytes);
    }
    return 0;
}

static int loop_all_gather(struct rf_control *c, const void *mine, size_t bytes, void *all,
                           double timeout_s)
{
    struct rf_loop_rank *self = self_of(c);
    pthread_mutex_lock(&self->world->lock);
    int rc = gather_locked(self, mine, bytes, all, timeout_s);
    pthread_mutex_unlock(&self->world->lock);
    return rc;
}

static int loop_notify(struct rf_control *c, const void *payload, size_t bytes)
{
    struct rf_loop_rank *self = self_of(c);
    if (bytes > sizeof(((struct rf_event *)0)->payload))
        return rf_fail(RF_EINVAL, "control: a message of %zu bytes; at most 512 are possible",
                       bytes);
    pthread_mutex_lock(&self->world->lock);
    if (!self->dead)
        rf_loop_push_to_others(self->world, RF_EVENT_MESSAGE, c->rank, payload, bytes, NULL);
    pthread_mutex_unlock(&self->world->lock);
    return 0;
}

static int loop_abort(struct rf_control *c, const char *text)
{
    struct rf_loop_rank *self = self_of(c);
    struct rf_loopback *world = self->world;
    pthread_mutex_lock(&world->lock);
    if (!self->dead) {
        rf_loop_push_to_others(world, RF_EVENT_ABORT, c->rank, NULL, 0, text);
        for (int rank = 0; rank < world->size; rank++)
            world->ranks[rank].aborted = true;
        pthread_cond_broadcast(&world->changed);
    }
    pthread_mutex_unlock(&world->lock);
    return 0;
}

static int loop_next_event(struct rf_control *c, struct rf_event *out)
{
    if (__atomic_load_n(&c->pending, __ATOMIC_ACQUIRE) == 0)
        return 0;
    struct rf_loop_rank *self = self_of(c);
    int found = 0;
    pthread_mutex_lock(&self->world->lock);
    struct rf_loop_event *item = self->events;
    if (item) {
        *out = item->event;
        self->events = item->next;
        if (!self->events)
            self->events_end = &self->events;
        rf_free(item);
        found = 1;
    }
    if (!self->events)
        __atomic_store_n(&c->pending, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&self->world->lock);
    return found;
}

/* Called with the world locked. */
static bool others_are_gone(struct rf_loopback *world)
{
    for (int rank = 0; rank < world->size; rank++)
        if (!world->ranks[rank].left && !world->ranks[rank].dead)
            return false;
    return true;
}

/* Called with the world locked. */
static void say_goodbye(struct rf_loop_rank *self)
{
    if (self->left)
        return;
    self->left = true;
    if (!self->dead)
        rf_loop_push_to_others(self->world, RF_EVENT_LEFT, self->control.rank, NULL, 0, "left");
    pthread_cond_broadcast(&self->world->changed);
}

static int loop_part(struct rf_control *c, uint64_t deadline_ns)
{
    struct rf_loop_rank *self = self_of(c);
    struct rf_loopback *world = self->world;
    pthread_mutex_lock(&world->lock);
    say_goodbye(self);
    while (!self->events && !self->dead && !self->aborted && !others_are_gone(world))
        if (!rf_cond_wait(&world->changed, &world->lock, deadline_ns))
            break;
    bool has_event = self->events != NULL;
    pthread_mutex_unlock(&world->lock);
    return has_event;
}

static void loop_leave(struct rf_control *c, double timeout_s)
{
    if (!c)
        return;
    struct rf_loop_rank *self = self_of(c);
    struct rf_loopback *world = self->world;
    const uint64_t until_ns = rf_after_s(timeout_s);
    pthread_mutex_lock(&world->lock);
    say_goodbye(self);
    while (!self->dead && !self->aborted && !others_are_gone(world))
        if (!rf_cond_wait(&world->changed, &world->lock, until_ns))
            break;
    rf_loop_drop_events(self);
    self->closed = true;
    pthread_mutex_unlock(&world->lock);
    rf_loop_end(world);
}

static const struct rf_control_ops loop_control_ops = {
    .all_gather = loop_all_gather,
    .notify = loop_notify,
    .abort = loop_abort,
    .next_event = loop_next_event,
    .part = loop_part,
    .leave = loop_leave,
};

struct rf_loopback *rf_loop_world(struct rf_control *c)
{
    return c->ops == &loop_control_ops ? self_of(c)->world : NULL;
}

int rf_loopback_control(struct rf_loopback *world, int rank, struct rf_control **out)
{
    if (!world || rank < 0 || rank >= world->size)
        return rf_fail(RF_EINVAL, "loopback: there is no rank %d in a world of %d", rank,
                       world ? world->size : 0);
    struct rf_loop_rank *self = &world->ranks[rank];
    pthread_mutex_lock(&world->lock);
    bool taken = self->opened_control;
    self->opened_control = true;
    pthread_mutex_unlock(&world->lock);
    if (taken)
        return rf_fail(RF_EBUSY, "loopback: rank %d has been opened before in this world", rank);
    self->control.ops = &loop_control_ops;
    self->control.host = rf_host_id(rank);
    *out = &self->control;
    return 0;
}

int rf_self_control(struct rf_control **out)
{
    struct rf_loopback *world = NULL;
    RETURN_IF_ERROR(rf_loopback_create(1, NULL, &world));
    world->ends = 1;
    return rf_loopback_control(world, 0, out);
}
