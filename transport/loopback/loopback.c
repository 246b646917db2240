/* SPDX-License-Identifier: MIT
 *
 * Ranks as threads of one process: mailboxes, a throttle, and faults. For tests and trials, and for
 * communicators of one rank. Messages are copied once, directly from the sender's buffer to the
 * receiver's, by whichever of the two comes second; so a send completes when it is matched, never
 * earlier.
 */
#include "loopback.h"

#include <unistd.h>

#include "base/base.h"

/* Providers have a limit, and so has this one, so that the callers' retries are exercised. */
enum { MAX_SENDS = 1024, SEGMENT_BYTES = 256 * 1024 };

static struct rf_loop_rank *self_of(struct rf_transport *t)
{
    return (struct rf_loop_rank *)t; /* the transport is its first member */
}

/* ---- matching -------------------------------------------------------------------------------- */

static void insert_by_time(struct rf_posted_list *list, struct rf_posted *posted)
{
    struct rf_posted **link = &list->first;
    if (!*link || list->last->ready_ns <= posted->ready_ns) {
        rf_posted_append(list, posted);
        return;
    }
    while ((*link)->ready_ns <= posted->ready_ns)
        link = &(*link)->next;
    posted->next = *link;
    *link = posted;
}

static void finish(struct rf_loop_rank *owner, struct rf_posted *posted)
{
    pthread_mutex_lock(&owner->done_lock);
    insert_by_time(&owner->done, posted);
    atomic_fetch_add_explicit(&owner->done_count, 1, memory_order_release);
    pthread_mutex_unlock(&owner->done_lock);
}

/* Both are in no list; the receiver's match_lock is held, so neither side can cancel. */
static void deliver(struct rf_loop_rank *receiver, struct rf_posted *send, struct rf_posted *recv)
{
    uint64_t copied = send->bytes < recv->bytes ? send->bytes : recv->bytes;
    if (copied > 0)
        memcpy(recv->buffer, send->buffer, copied);
    recv->contract = send->contract;
    if (send->corrupt) {
        recv->contract ^= 1;
        if (copied > 0)
            *(uint8_t *)recv->buffer ^= 1;
    }
    if (send->damaged && copied > 0)
        ((uint8_t *)recv->buffer)[copied / 2] ^= 0x10;
    recv->status = send->bytes > recv->bytes ? RF_EMISMATCH : 0;
    recv->bytes = copied;
    recv->moved = send->bytes;
    recv->ready_ns = send->ready_ns;
    finish(receiver, recv);
    finish(&receiver->world->ranks[send->match_rank], send);
}

static int killed_error(int rank)
{
    return rf_fail_rank(RF_ENET, rank, "rank %d was killed by the fault injector", rank);
}

static void loop_cancel_all(struct rf_transport *t);

static int kill_self(struct rf_loop_rank *self)
{
    if (!atomic_exchange(&self->killed, true)) {
        loop_cancel_all(&self->transport);
        rf_loop_report_death(self->world, self->transport.rank, "killed by the fault injector");
    }
    return killed_error(self->transport.rank);
}

/* The throttle: the time at which a message of this size, sent now, arrives. 0 = at once. */
static uint64_t arrival_ns(struct rf_loop_rank *self, int peer, size_t bytes)
{
    const struct rf_loopback_opts *opts = &self->world->opts;
    if (opts->bytes_per_s <= 0 && opts->latency_s <= 0)
        return 0;
    uint64_t start = rf_now_ns();
    if (opts->bytes_per_s > 0) {
        if (self->link_free_ns[peer] > start)
            start = self->link_free_ns[peer];
        start = rf_add_ns(start, rf_seconds_to_ns((double)bytes / opts->bytes_per_s));
        self->link_free_ns[peer] = start;
    }
    return rf_add_ns(start, rf_seconds_to_ns(opts->latency_s));
}

/* Counts a message to another rank, and applies throttle and faults to it. Returns 1 if the message
 * must be lost. */
static int count_and_throttle(struct rf_loop_rank *self, int peer, struct rf_posted *node)
{
    struct rf_loopback *world = self->world;
    const struct rf_loopback_opts *opts = &world->opts;
    uint64_t number = 1 + atomic_fetch_add_explicit(&world->messages, 1, memory_order_relaxed);
    self->messages++;
    rf_count_sent(&self->transport, node->bytes);
    node->ready_ns = arrival_ns(self, peer, node->bytes);
    if (number == opts->delay_message)
        node->ready_ns = rf_add_ns(node->ready_ns ? node->ready_ns : rf_now_ns(),
                                   rf_seconds_to_ns(opts->delay_s));
    node->corrupt = number == opts->corrupt_message;
    node->damaged = number == opts->damage_message;
    return number == opts->drop_message;
}

static int loop_post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                          const void *buffer, size_t bytes, void *context)
{
    struct rf_loop_rank *self = self_of(t);
    struct rf_loopback *world = self->world;
    RETURN_IF_ERROR(rf_check_post(t, false, peer, bytes, UINT64_MAX));
    if (atomic_load_explicit(&self->killed, memory_order_relaxed))
        return killed_error(t->rank);
    const struct rf_loopback_opts *opts = &world->opts;
    if (opts->kill_after_messages > 0 && t->rank == opts->kill_rank && peer != t->rank &&
        self->messages >= opts->kill_after_messages)
        return kill_self(self);
    if (atomic_load_explicit(&self->sends_outstanding, memory_order_relaxed) >= MAX_SENDS)
        return RF_EAGAIN;

    struct rf_posted *send = context;
    *send = rf_posted_send(peer, tag, contract, buffer, bytes);
    send->match_rank = t->rank;
    atomic_fetch_add_explicit(&self->sends_outstanding, 1, memory_order_relaxed);
    if (peer != t->rank && count_and_throttle(self, peer, send)) {
        finish(self, send);
        return 0;
    }
    struct rf_loop_rank *target = &world->ranks[peer];
    unsigned bucket = rf_match_bucket(t->rank, tag);
    pthread_mutex_lock(&target->match_lock);
    struct rf_posted *recv = rf_posted_match(&target->recvs[bucket], t->rank, tag);
    if (recv)
        deliver(target, send, recv);
    else
        rf_posted_append(&target->sends[bucket], send);
    pthread_mutex_unlock(&target->match_lock);
    return 0;
}

static int loop_post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                          size_t bytes, void *context)
{
    struct rf_loop_rank *self = self_of(t);
    RETURN_IF_ERROR(rf_check_post(t, false, peer, bytes, UINT64_MAX));
    if (atomic_load_explicit(&self->killed, memory_order_relaxed))
        return killed_error(t->rank);
    struct rf_posted *recv = context;
    *recv = (struct rf_posted){.tag = tag,
                               .buffer = buffer,
                               .bytes = bytes,
                               .peer = peer,
                               .match_rank = peer,
                               .is_recv = 1};
    unsigned bucket = rf_match_bucket(peer, tag);
    pthread_mutex_lock(&self->match_lock);
    struct rf_posted *send = rf_posted_match(&self->sends[bucket], peer, tag);
    if (send)
        deliver(self, send, recv);
    else
        rf_posted_append(&self->recvs[bucket], recv);
    pthread_mutex_unlock(&self->match_lock);
    return 0;
}

static int loop_poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    struct rf_loop_rank *self = self_of(t);
    if (atomic_load_explicit(&self->killed, memory_order_relaxed))
        return killed_error(t->rank);
    if (atomic_load_explicit(&self->done_count, memory_order_acquire) == 0)
        return 0;
    int count = 0;
    uint64_t now = 0;
    pthread_mutex_lock(&self->done_lock);
    while (count < max && self->done.first) {
        struct rf_posted *node = self->done.first;
        if (node->ready_ns > now && node->ready_ns > (now = rf_now_ns()))
            break; /* the list is ordered by time */
        rf_posted_take(&self->done);
        atomic_fetch_sub_explicit(&self->done_count, 1, memory_order_relaxed);
        if (!node->is_recv)
            atomic_fetch_sub_explicit(&self->sends_outstanding, 1, memory_order_relaxed);
        rf_posted_complete(node, &out[count++]);
    }
    pthread_mutex_unlock(&self->done_lock);
    return count;
}

static void loop_cancel_all(struct rf_transport *t)
{
    struct rf_loop_rank *self = self_of(t);
    struct rf_loopback *world = self->world;
    for (int peer = 0; peer < world->size; peer++) {
        struct rf_loop_rank *target = &world->ranks[peer];
        pthread_mutex_lock(&target->match_lock);
        for (unsigned b = 0; b < RF_MATCH_BUCKETS; b++) {
            struct rf_posted_list sends = target->sends[b];
            target->sends[b] = (struct rf_posted_list){0};
            for (struct rf_posted *send; (send = rf_posted_take(&sends));)
                if (send->match_rank != t->rank)
                    rf_posted_append(&target->sends[b], send);
            if (peer == t->rank)
                target->recvs[b] = (struct rf_posted_list){0};
        }
        pthread_mutex_unlock(&target->match_lock);
    }
    pthread_mutex_lock(&self->done_lock);
    self->done = (struct rf_posted_list){0};
    atomic_store(&self->done_count, 0);
    atomic_store(&self->sends_outstanding, 0);
    pthread_mutex_unlock(&self->done_lock);
}

static void loop_destroy(struct rf_transport *t)
{
    if (!t)
        return;
    struct rf_loopback *world = self_of(t)->world;
    loop_cancel_all(t);
    rf_loop_end(world);
}

static const struct rf_transport_ops loop_ops = {
    .post_send = loop_post_send,
    .post_recv = loop_post_recv,
    .poll = loop_poll,
    .cancel_all = loop_cancel_all,
    .destroy = loop_destroy,
};

/* ---- the world ------------------------------------------------------------------------------- */

static int check_opts(int size, const struct rf_loopback_opts *opts)
{
    if (size < 1 || size > 4096)
        return rf_fail(RF_EINVAL, "loopback: %d ranks; 1 to 4096 are possible", size);
    if (!opts)
        return 0;
    int faults = (opts->kill_after_messages > 0) + (opts->drop_message > 0) +
                 (opts->delay_message > 0) + (opts->corrupt_message > 0) +
                 (opts->damage_message > 0);
    if (faults > 1)
        return rf_fail(RF_EINVAL, "loopback: %d faults asked for; one at a time", faults);
    if (!(opts->latency_s >= 0 && opts->bytes_per_s >= 0 && opts->delay_s >= 0))
        return rf_fail(RF_EINVAL,
                       "loopback: a latency of %g s, a delay of %g s and %g bytes per second; they "
                       "must be numbers, and none may be negative",
                       opts->latency_s, opts->delay_s, opts->bytes_per_s);
    if (opts->kill_after_messages > 0 && (opts->kill_rank < 0 || opts->kill_rank >= size))
        return rf_fail(RF_EINVAL, "loopback: kill_rank %d is outside a world of %d",
                       opts->kill_rank, size);
    return 0;
}

static int init_rank(struct rf_loopback *world, int rank)
{
    struct rf_loop_rank *self = &world->ranks[rank];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    self->world = world;
    self->transport = (struct rf_transport){.ops = &loop_ops,
                                            .name = "loopback",
                                            .rank = rank,
                                            .size = world->size,
                                            .one_process = true,
                                            .yield = world->size > cores,
                                            .segment_bytes = SEGMENT_BYTES};
    pthread_mutex_init(&self->match_lock, NULL);
    pthread_mutex_init(&self->done_lock, NULL);
    self->control = (struct rf_control){.rank = rank, .size = world->size}; /* until it is opened */
    self->events_end = &self->events;
    self->link_free_ns = rf_alloc((size_t)world->size * sizeof(*self->link_free_ns));
    if (!self->link_free_ns)
        return rf_fail(RF_ENOMEM, "loopback: no memory for %d ranks", world->size);
    return 0;
}

int rf_loopback_create(int size, const struct rf_loopback_opts *opts, struct rf_loopback **out)
{
    RETURN_IF_ERROR(check_opts(size, opts));
    struct rf_loopback *world = rf_alloc(sizeof(*world));
    if (!world)
        return rf_fail(RF_ENOMEM, "loopback: no memory for %d ranks", size);
    if (opts)
        world->opts = *opts;
    pthread_mutex_init(&world->lock, NULL);
    rf_cond_init(&world->changed);
    int rc = 0;
    world->ranks = rf_alloc((size_t)size * sizeof(*world->ranks));
    if (!world->ranks)
        rc = rf_fail(RF_ENOMEM, "loopback: no memory for %d ranks", size);
    world->size = world->ranks ? size : 0;
    /* All ranks are initialised even after a failure, so that destroy need not know their number.
     */
    for (int rank = 0; rank < world->size; rank++) {
        int status = init_rank(world, rank);
        if (rc == 0)
            rc = status;
    }
    if (rc < 0) {
        rf_loopback_destroy(world);
        return rc;
    }
    *out = world;
    return 0;
}

int rf_loop_create_group(const struct rf_loopback *world, int count, struct rf_loopback **out)
{
    const struct rf_loopback_opts links = {.latency_s = world->opts.latency_s,
                                           .bytes_per_s = world->opts.bytes_per_s};
    RETURN_IF_ERROR(rf_loopback_create(count, &links, out));
    (*out)->ends = 2 * (unsigned)count;
    return 0;
}

void rf_loopback_destroy(struct rf_loopback *world)
{
    if (!world)
        return;
    for (int rank = 0; rank < world->size; rank++) {
        struct rf_loop_rank *self = &world->ranks[rank];
        rf_loop_drop_events(self);
        rf_free(self->slot[0].data);
        rf_free(self->slot[1].data);
        rf_free(self->link_free_ns);
        pthread_mutex_destroy(&self->match_lock);
        pthread_mutex_destroy(&self->done_lock);
    }
    pthread_mutex_destroy(&world->lock);
    pthread_cond_destroy(&world->changed);
    rf_free(world->ranks);
    rf_free(world);
}

void rf_loop_end(struct rf_loopback *world)
{
    if (atomic_load(&world->ends) > 0 && atomic_fetch_sub(&world->ends, 1) == 1)
        rf_loopback_destroy(world);
}

int rf_loopback_transport(struct rf_loopback *world, int rank, struct rf_transport **out)
{
    if (!world || rank < 0 || rank >= world->size)
        return rf_fail(RF_EINVAL, "loopback: there is no rank %d in a world of %d", rank,
                       world ? world->size : 0);
    struct rf_loop_rank *self = &world->ranks[rank];
    pthread_mutex_lock(&world->lock);
    bool taken = self->opened_transport;
    self->opened_transport = true;
    pthread_mutex_unlock(&world->lock);
    if (taken)
        return rf_fail(RF_EBUSY, "loopback: rank %d has been opened before in this world", rank);
    *out = &self->transport;
    return 0;
}

int rf_self_transport(struct rf_transport **out)
{
    struct rf_loopback *world = NULL;
    RETURN_IF_ERROR(rf_loopback_create(1, NULL, &world));
    world->ends = 1;
    return rf_loopback_transport(world, 0, out);
}
