/* SPDX-License-Identifier: MIT
 *
 * A foreign program that listens in place of a rank: its answers to a rank that authenticates. It
 * does not know the key, so no answer may be accepted.
 */
#include <ringforge/ringforge.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "transport/bootstrap/join.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    if (size > 60000)
        return 0;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    struct rf_rendezvous rendezvous = {.host = "nowhere", .port = 1, .rank = 1, .size = 4};
    REQUIRE(rf_job_key_init(&rendezvous.key, "secret") == 0);
    struct rf_link link;
    rf_link_init(&link, ends[0], RF_FRAME_MAX_PAYLOAD);
    /* All bytes are available before the rank authenticates, and nothing follows. */
    if (send(ends[1], data, size, MSG_NOSIGNAL) == (ssize_t)size) {
        shutdown(ends[1], SHUT_WR);
        REQUIRE(rf_join_authenticate(&rendezvous, &link, rf_now_ns() + 1000000000) < 0);
    }
    close(ends[1]);
    rf_link_close(&link);
    return 0;
}
