/* SPDX-License-Identifier: MIT
 *
 * The bytes of a data connection over TCP: the first byte says which receives are posted and in
 * what parts the rest arrives. No input may end in more than an error that names the peer.
 */
#include "fuzz.h"
#include "transport/tcp/tcp.h"

enum { RECEIVES = 4, RECEIVE_BYTES = 300 << 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct {
        _Alignas(64) unsigned char provider[64];
    } contexts[RECEIVES];
    static const size_t bytes[RECEIVES] = {0, 100, 20000, RECEIVE_BYTES};
    struct rf_tcp *h;
    if (size == 0)
        return 0;
    REQUIRE(rf_tcp_end_open(1, 2, &h) == 0);
    struct rf_tcp_peer *peer = &h->peers[0];
    const struct rf_transport_ops *ops = h->transport.ops;
    unsigned char *buffers[RECEIVES];
    for (int i = 0; i < RECEIVES; i++) {
        buffers[i] = malloc(bytes[i] + 1);
        if (data[0] >> i & 1)
            REQUIRE(ops->post_recv(&h->transport, 0, (uint64_t)i, buffers[i], bytes[i],
                                   &contexts[i]) == 0);
    }
    const size_t part = (size_t)(data[0] >> 4) * 7 + 1;
    int rc = 0;
    for (size_t at = 1; at < size && rc == 0; at += part) {
        const size_t count = size - at < part ? size - at : part;
        /* A copy that ends where the bytes end, so that reading beyond is found. */
        unsigned char *copy = malloc(count);
        memcpy(copy, data + at, count);
        rc = rf_tcp_take_in(h, peer, copy, count);
        free(copy);
    }
    REQUIRE(rc == 0 || (rc == RF_ECORRUPT && rf_last_error()->rank == 0));
    /* Receives that come after their messages. */
    for (int i = 0; i < RECEIVES; i++)
        if (!(data[0] >> i & 1))
            REQUIRE(ops->post_recv(&h->transport, 0, (uint64_t)i, buffers[i], bytes[i],
                                   &contexts[i]) == 0);
    for (struct rf_posted *node; (node = rf_posted_take(&h->done)) != NULL;)
        REQUIRE(node->is_recv && (node->status == 0 || node->status == RF_EMISMATCH) &&
                (node->status != 0 || node->bytes <= RECEIVE_BYTES));
    rf_tcp_end_close(h);
    for (int i = 0; i < RECEIVES; i++)
        free(buffers[i]);
    return 0;
}
