/* SPDX-License-Identifier: MIT
 *
 * A transport around the real one, for the executors. It passes point-to-point completions to
 * p2p_receive.c, so that messages which arrive while a collective runs are received, and never
 * block later messages on the same connection.
 */
#include "../communicator.h"
#include "../p2p.h"

struct demux {
    struct rf_transport base;
    struct rf_transport_ops ops;
    struct rf_transport *transport;
    struct rf_p2p **p2p; /* the communicator's, which is created later */
};

static struct demux *demux_of(struct rf_transport *t)
{
    return (struct demux *)t; /* base is its first member */
}

static int demux_post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                           const void *buffer, size_t bytes, void *context)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->post_send(transport, peer, tag, contract, buffer, bytes, context);
}

static int demux_post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                           size_t bytes, void *context)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->post_recv(transport, peer, tag, buffer, bytes, context);
}

static int demux_send_at_once(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                              const void *buffer, size_t bytes)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->send_at_once(transport, peer, tag, contract, buffer, bytes);
}

static int demux_recv_at_once(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                              size_t bytes, struct rf_completion *out)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->recv_at_once(transport, peer, tag, buffer, bytes, out);
}

static int demux_poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    struct demux *demux = demux_of(t);
    struct rf_transport *transport = demux->transport;
    struct rf_p2p *p2p = *demux->p2p;
    if (p2p && rf_p2p_must_retry(p2p))
        RETURN_IF_ERROR(rf_p2p_retry(p2p));
    int count = transport->ops->poll(transport, out, max);
    if (count <= 0 || !p2p)
        return count;
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int taken = rf_p2p_completion(p2p, &out[i]);
        if (taken < 0)
            return taken;
        if (taken == 0 && kept++ < i)
            out[kept - 1] = out[i];
    }
    return kept;
}

static int demux_register(struct rf_transport *t, void *base, size_t bytes, void **handle)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->register_memory(transport, base, bytes, handle);
}

static void demux_deregister(struct rf_transport *t, void *handle)
{
    struct rf_transport *transport = demux_of(t)->transport;
    transport->ops->deregister_memory(transport, handle);
}

static void demux_cancel_all(struct rf_transport *t)
{
    struct rf_transport *transport = demux_of(t)->transport;
    transport->ops->cancel_all(transport);
}

static int demux_post_recv_zero_copy(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                                     size_t bytes, void *context)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->post_recv_zero_copy(transport, peer, tag, buffer, bytes, context);
}

static int demux_post_recv_exchange(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                                    size_t bytes, void *context)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->post_recv_exchange(transport, peer, tag, buffer, bytes, context);
}

static void demux_release_zero_copy(struct rf_transport *t, int peer, uint32_t token)
{
    struct rf_transport *transport = demux_of(t)->transport;
    transport->ops->release_zero_copy(transport, peer, token);
}

static int demux_alloc(struct rf_transport *t, size_t bytes, void **out)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->alloc(transport, bytes, out);
}

static void demux_free(struct rf_transport *t, void *memory)
{
    struct rf_transport *transport = demux_of(t)->transport;
    transport->ops->free(transport, memory);
}

static bool demux_locate(struct rf_transport *t, const void *memory, size_t bytes, uint64_t *offset)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->locate(transport, memory, bytes, offset);
}

static int demux_reach(struct rf_transport *t, int peer, uint64_t offset, size_t bytes,
                       unsigned char **out)
{
    struct rf_transport *transport = demux_of(t)->transport;
    return transport->ops->reach(transport, peer, offset, bytes, out);
}

static const struct rf_transport_ops demux_ops = {
    .post_send = demux_post_send,
    .post_recv = demux_post_recv,
    .poll = demux_poll,
    .cancel_all = demux_cancel_all,
    .destroy = rf_demux_destroy,
};

int rf_demux_create(struct rf_transport *transport, struct rf_p2p **p2p, struct rf_transport **out)
{
    struct demux *demux = rf_alloc(sizeof(*demux));
    if (!demux)
        return rf_fail(RF_ENOMEM, "no memory for a communicator");
    demux->base = *transport;
    demux->ops = demux_ops;
    if (transport->ops->send_at_once)
        demux->ops.send_at_once = demux_send_at_once;
    if (transport->ops->recv_at_once)
        demux->ops.recv_at_once = demux_recv_at_once;
    if (transport->ops->register_memory) {
        demux->ops.register_memory = demux_register;
        demux->ops.deregister_memory = demux_deregister;
    }
    if (rf_transport_shares_memory(transport)) {
        demux->ops.post_recv_zero_copy = demux_post_recv_zero_copy;
        demux->ops.release_zero_copy = demux_release_zero_copy;
        demux->ops.alloc = demux_alloc;
        demux->ops.free = demux_free;
        demux->ops.locate = demux_locate;
        demux->ops.reach = demux_reach;
    }
    if (transport->ops->post_recv_exchange)
        demux->ops.post_recv_exchange = demux_post_recv_exchange;
    demux->base.ops = &demux->ops;
    demux->transport = transport;
    demux->p2p = p2p;
    *out = &demux->base;
    return 0;
}

void rf_demux_destroy(struct rf_transport *demux)
{
    rf_free(demux);
}
