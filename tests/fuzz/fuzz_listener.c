/* SPDX-License-Identifier: MIT
 *
 * Pending connections of a listener: bytes that they send before they prove the job key, in pieces
 * of the length in the first byte. None may be admitted, and the listener must continue.
 */
#include <ringforge/ringforge.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "transport/bootstrap/listener.h"

static int admit(void *owner, int rank, struct rf_link *link)
{
    REQUIRE(!"a connection without the key was admitted");
    return RF_EAUTH;
}

static void drain(int fd)
{
    char answer[1024];
    while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT) > 0) {
    }
}

/* The maximum number of open connections. The second byte gives the number, and pieces go to them
 * in turn. */
enum { MOST_CONNECTIONS = 4 };

static void add_pending(struct rf_listener *listener, int fd)
{
    struct rf_pending_connection *connection = &listener->pending[listener->pending_count++];
    memset(connection, 0, sizeof(*connection));
    rf_link_init(&connection->link, fd, 64);
    connection->since_ns = rf_now_ns();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rf_listener listener;
    struct rf_job_key key;
    int outside[MOST_CONNECTIONS];
    if (size < 3 || size > 4096)
        return 0;
    const size_t piece = (size_t)data[0] + 1;
    const int connections = 1 + data[1] % MOST_CONNECTIONS;
    REQUIRE(rf_job_key_init(&key, "secret") == 0);
    rf_listener_init(&listener, -1, 4, &key);
    listener.admit = admit;
    for (int i = 0; i < connections; i++) {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        outside[i] = ends[1];
        add_pending(&listener, ends[0]);
    }
    data += 2, size -= 2;
    for (int turn = 0; size > 0 && listener.pending_count > 0; turn++) {
        const int fd = outside[turn % connections];
        size_t now = size < piece ? size : piece;
        /* One connection may be closed; the others continue. */
        if (send(fd, data, now, MSG_NOSIGNAL) < 0 && listener.pending_count == connections)
            break;
        rf_listener_serve(&listener);
        REQUIRE(listener.pending_count >= 0 && listener.pending_count <= connections);
        drain(fd);
        data += now, size -= now;
    }
    for (int i = 0; i < connections; i++)
        close(outside[i]);
    rf_listener_serve(&listener);
    rf_listener_close(&listener);
    return 0;
}
