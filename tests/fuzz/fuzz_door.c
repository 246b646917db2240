/* SPDX-License-Identifier: MIT
 *
 * Strangers at the door of rank 0, or at the gate of a survivor: what is sent over their
 * connections before the job key is proved, in pieces as long as the first byte says. Nobody may be
 * admitted, and the door must stand.
 */
#include <ringforge/ringforge.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "transport/bootstrap/door.h"

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

/* Connections that are open at a time: the second byte says how many, and pieces go to them in
 * turn.
 */
enum { MOST_STRANGERS = 4 };

static void seat(struct rf_door *door, int fd)
{
    struct rf_door_guest *guest = &door->guests[door->guest_count++];
    memset(guest, 0, sizeof(*guest));
    rf_link_init(&guest->link, fd, 64);
    guest->since_ns = rf_now_ns();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rf_door door;
    struct rf_job_key key;
    int outside[MOST_STRANGERS];
    if (size < 3 || size > 4096)
        return 0;
    const size_t piece = (size_t)data[0] + 1;
    const int strangers = 1 + data[1] % MOST_STRANGERS;
    REQUIRE(rf_job_key_init(&key, "secret") == 0);
    rf_door_init(&door, -1, 4, &key);
    door.admit = admit;
    for (int i = 0; i < strangers; i++) {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        outside[i] = ends[1];
        seat(&door, ends[0]);
    }
    data += 2, size -= 2;
    for (int turn = 0; size > 0 && door.guest_count > 0; turn++) {
        const int fd = outside[turn % strangers];
        size_t now = size < piece ? size : piece;
        /* Who was dropped hears so; the others go on. */
        if (send(fd, data, now, MSG_NOSIGNAL) < 0 && door.guest_count == strangers)
            break;
        rf_door_serve(&door);
        REQUIRE(door.guest_count >= 0 && door.guest_count <= strangers);
        drain(fd);
        data += now, size -= now;
    }
    for (int i = 0; i < strangers; i++)
        close(outside[i]);
    rf_door_serve(&door);
    rf_door_close(&door);
    return 0;
}
