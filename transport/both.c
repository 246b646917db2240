/* SPDX-License-Identifier: MIT
 *
 * A transport of two: shared memory to the ranks of this host, the network to all others. A peer is
 * reached in one way only, so matching is as exact as that of each. Made by choose.c.
 */
#include "base/base.h"
#include "shm/host.h"

struct both {
    struct rf_transport transport; /* first member */
    struct rf_transport *near, *far;
    uint64_t far_pending; /* posted there, and not ended: else nobody has to look */
    bool far_next;
    char name[64];
};

static struct both *both_of(struct rf_transport *t)
{
    return (struct both *)t;
}

static bool is_near(const struct both *b, int peer)
{
    /* A rank that there is not is near's to refuse. */
    return peer < 0 || peer >= b->transport.size || rf_host_has(b->near, peer);
}

static int both_post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                          const void *buffer, size_t bytes, void *context)
{
    struct both *b = both_of(t);
    bool near = is_near(b, peer);
    struct rf_transport *part = near ? b->near : b->far;
    RETURN_IF_ERROR(part->ops->post_send(part, peer, tag, contract, buffer, bytes, context));
    b->far_pending += !near;
    if (peer != t->rank) {
        t->sent_bytes += bytes;
        t->sent_messages++;
    }
    return 0;
}

static int post_far(struct both *b, int peer, uint64_t tag, void *buffer, size_t bytes,
                    void *context)
{
    RETURN_IF_ERROR(b->far->ops->post_recv(b->far, peer, tag, buffer, bytes, context));
    b->far_pending++;
    return 0;
}

static int both_post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                          size_t bytes, void *context)
{
    struct both *b = both_of(t);
    return is_near(b, peer) ? b->near->ops->post_recv(b->near, peer, tag, buffer, bytes, context)
                            : post_far(b, peer, tag, buffer, bytes, context);
}

static int both_post_borrow(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                            size_t bytes, void *context)
{
    struct both *b = both_of(t);
    return is_near(b, peer) ? b->near->ops->post_borrow(b->near, peer, tag, buffer, bytes, context)
                            : post_far(b, peer, tag, buffer, bytes, context);
}

/* The two in turns, so that neither waits while the other is busy. */
static int both_poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    struct both *b = both_of(t);
    for (int i = 0; i < 2; i++) {
        bool far = b->far_next;
        struct rf_transport *part = far ? b->far : b->near;
        b->far_next = !far;
        if (far && b->far_pending == 0)
            continue;
        int count = part->ops->poll(part, out, max);
        if (far && count > 0)
            b->far_pending -= (uint64_t)count;
        if (count != 0)
            return count;
    }
    return 0;
}

/* Shared memory takes any. */
static int both_register(struct rf_transport *t, void *base, size_t bytes, void **handle)
{
    struct both *b = both_of(t);
    return b->far->ops->register_memory(b->far, base, bytes, handle);
}

static void both_deregister(struct rf_transport *t, void *handle)
{
    struct both *b = both_of(t);
    b->far->ops->deregister_memory(b->far, handle);
}

static void both_cancel_all(struct rf_transport *t)
{
    struct both *b = both_of(t);
    b->near->lost_peer = b->far->lost_peer = t->lost_peer;
    b->near->ops->cancel_all(b->near);
    b->far->ops->cancel_all(b->far);
}

static void both_destroy(struct rf_transport *t)
{
    if (!t)
        return;
    struct both *b = both_of(t);
    rf_log("transport", 2, "%s: sent %llu bytes within the host and %llu to others", t->name,
           (unsigned long long)b->near->sent_bytes, (unsigned long long)b->far->sent_bytes);
    b->far->ops->destroy(b->far);
    b->near->ops->destroy(b->near);
    rf_free(b);
}

static void both_give_back(struct rf_transport *t, int peer, uint32_t loan)
{
    rf_host_give_back(both_of(t)->near, peer, loan);
}

static int both_alloc(struct rf_transport *t, size_t bytes, void **out)
{
    return rf_host_alloc(both_of(t)->near, bytes, out);
}

static void both_free(struct rf_transport *t, void *memory)
{
    rf_host_free(both_of(t)->near, memory);
}

static bool both_locate(struct rf_transport *t, const void *memory, size_t bytes, uint64_t *offset)
{
    return rf_host_locate(both_of(t)->near, memory, bytes, offset);
}

static int both_reach(struct rf_transport *t, int peer, uint64_t offset, size_t bytes,
                      unsigned char **out)
{
    return rf_host_reach(both_of(t)->near, peer, offset, bytes, out);
}

static bool both_idle(struct rf_transport *t)
{
    return rf_host_idle(both_of(t)->near);
}

static const struct rf_transport_ops both_ops = {
    .post_send = both_post_send,
    .post_recv = both_post_recv,
    .poll = both_poll,
    .register_memory = both_register,
    .deregister_memory = both_deregister,
    .cancel_all = both_cancel_all,
    .destroy = both_destroy,
    .post_borrow = both_post_borrow,
    .give_back = both_give_back,
    .alloc = both_alloc,
    .free = both_free,
    .locate = both_locate,
    .reach = both_reach,
    .idle = both_idle,
};

int rf_both_create(struct rf_transport *near, struct rf_transport *far, struct rf_transport **out)
{
    struct both *b = rf_alloc(sizeof(*b));
    if (!b) {
        far->ops->destroy(far);
        near->ops->destroy(near);
        return rf_fail(RF_ENOMEM, "no memory for a transport");
    }
    snprintf(b->name, sizeof(b->name), "%s+%s", near->name, far->name);
    b->near = near;
    b->far = far;
    b->transport = (struct rf_transport){.ops = &both_ops,
                                         .name = b->name,
                                         .rank = near->rank,
                                         .size = near->size,
                                         .yield = near->yield || far->yield,
                                         .stalls = near->stalls || far->stalls,
                                         .segment_bytes = near->segment_bytes < far->segment_bytes
                                                              ? near->segment_bytes
                                                              : far->segment_bytes};
    *out = &b->transport;
    return 0;
}
