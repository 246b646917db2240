/* SPDX-License-Identifier: MIT
 *
 * What is not done for every message of a transport that matches by tag: errors, and messages of a
 * rank to itself.
 */
#include "matching.h"

#include "base/base.h"

int rf_posted_fail_length(const struct rf_posted *recv)
{
    return rf_fail_rank(RF_EMISMATCH, recv->peer,
                        "rank %d sent %llu bytes where %llu were expected", recv->peer,
                        (unsigned long long)recv->moved, (unsigned long long)recv->bytes);
}

int rf_refuse_post(const struct rf_transport *t, bool cancelled, int peer, uint64_t bytes,
                   uint64_t most)
{
    if (cancelled)
        return rf_fail(RF_EABORT, "%s: the transport has been cancelled", t->name);
    if (peer < 0 || peer >= t->size)
        return rf_fail(RF_EINVAL, "%s: there is no rank %d in a world of %d", t->name, peer,
                       t->size);
    return rf_fail(RF_ENOTSUP, "%s: a message of %llu bytes; at most %llu are possible", t->name,
                   (unsigned long long)bytes, (unsigned long long)most);
}

int rf_self_post_send(struct rf_self *self, uint64_t tag, uint32_t contract, const void *buffer,
                      size_t bytes, void *context)
{
    struct rf_transport *t = self->transport;
    RETURN_IF_ERROR(t->ops->post_send(t, 0, tag, contract, buffer, bytes, context));
    self->pending++;
    return 0;
}

int rf_self_post_recv(struct rf_self *self, uint64_t tag, void *buffer, size_t bytes, void *context)
{
    struct rf_transport *t = self->transport;
    RETURN_IF_ERROR(t->ops->post_recv(t, 0, tag, buffer, bytes, context));
    self->pending++;
    return 0;
}

int rf_self_poll(struct rf_self *self, int rank, struct rf_completion *out, int max)
{
    const int found = self->transport->ops->poll(self->transport, out, max);
    for (int i = 0; i < found; i++) {
        struct rf_posted *posted = out[i].context;
        posted->peer = rank; /* which its transport does not know: errors name it */
        rf_posted_complete(posted, &out[i]);
    }
    self->pending -= found > 0 ? (uint64_t)found : 0;
    return found;
}

void rf_self_cancel(struct rf_self *self)
{
    if (self->transport)
        self->transport->ops->cancel_all(self->transport);
    self->pending = 0;
}

void rf_self_close(struct rf_self *self)
{
    if (self->transport)
        self->transport->ops->destroy(self->transport);
}
