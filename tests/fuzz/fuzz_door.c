/* SPDX-License-Identifier: MIT
 *
 * A stranger at the door of rank 0: what is sent over a connection before the job key is proved, in
 * pieces of the lengths that the first bytes say. Nobody may be admitted, and the door must stand.
 */
#include <sys/socket.h>

#include "fuzz.h"
#include "transport/door.h"

static int admit(void *owner, int rank, struct rf_link *link)
{
    REQUIRE(!"a stranger was admitted");
    return RF_EAUTH;
}

static void drain(int fd)
{
    char answer[1024];
    while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT) > 0) {
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rf_door door;
    struct rf_job_key key;
    int ends[2];
    if (size < 2 || size > 4096)
        return 0;
    REQUIRE(rf_job_key_init(&key, "secret") == 0);
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    rf_door_init(&door, -1, 4, &key);
    door.admit = admit;
    door.guest_count = 1;
    memset(&door.guests[0], 0, sizeof(door.guests[0]));
    rf_link_init(&door.guests[0].link, ends[0], 64);
    door.guests[0].since_ns = rf_now_ns();
    const size_t piece = (size_t)data[0] + 1;
    for (data++, size--; size > 0 && door.guest_count > 0;) {
        size_t now = size < piece ? size : piece;
        if (send(ends[1], data, now, MSG_NOSIGNAL) != (ssize_t)now)
            break;
        rf_door_serve(&door);
        drain(ends[1]);
        data += now, size -= now;
    }
    close(ends[1]);
    rf_door_serve(&door);
    rf_door_close(&door);
    return 0;
}
