/* SPDX-License-Identifier: MIT
 *
 * Opening a gate, and telling everybody where it is.
 */
#include "gate.h"

#include <unistd.h>

#include "base/base.h"
#include "control.h"
#include "socket.h"

struct rf_gate *rf_gate_hold(struct rf_gate *gate)
{
    atomic_fetch_add(&gate->holders, 1);
    return gate;
}

void rf_gate_release(struct rf_gate *gate)
{
    if (!gate || atomic_fetch_sub(&gate->holders, 1) > 1)
        return;
    if (gate->listener >= 0)
        close(gate->listener);
    pthread_mutex_destroy(&gate->lock);
    rf_free(gate->seats);
    rf_free(gate);
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* Who joined over loopback is on rank 0's host, and is found by the others as rank 0 is. */
static void find_hosts(struct rf_gate *gate, char (*addresses)[64], bool *everywhere)
{
    *everywhere = false;
    for (int r = 0; r < gate->size; r++) {
        addresses[r][63] = 0;
        *everywhere = *everywhere || !is_loopback(addresses[r]);
    }
    for (int r = 0; r < gate->size; r++)
        snprintf(gate->seats[r].host, sizeof(gate->seats[r].host), "%s",
                 addresses[is_loopback(addresses[r]) ? 0 : r]);
}

static int exchange(struct rf_gate *gate, struct rf_control *control, const char mine[64],
                    double timeout_s, char (*addresses)[64], int32_t *ports)
{
    bool everywhere;
    int port = 0;
    RETURN_IF_ERROR(control->ops->all_gather(control, mine, 64, addresses, timeout_s));
    find_hosts(gate, addresses, &everywhere);
    if (rf_socket_listen(gate->seats[control->rank].host, 0, everywhere, &gate->listener, &port) <
        0) {
        rf_log("transport", 1, "no gate, so survivors could not find this rank: %s",
               rf_last_error()->message);
        port = 0;
    }
    const int32_t own = port;
    RETURN_IF_ERROR(control->ops->all_gather(control, &own, sizeof(own), ports, timeout_s));
    for (int r = 0; r < gate->size; r++)
        gate->seats[r].port = ports[r] > 0 && ports[r] < 65536 ? ports[r] : 0;
    return 0;
}

int rf_gate_open(struct rf_control *control, const struct rf_job_key *key, const char *address,
                 double timeout_s, struct rf_gate **out)
{
    char mine[64] = {0};
    const size_t size = (size_t)control->size;
    struct rf_gate *gate = rf_alloc(sizeof(*gate));
    char(*addresses)[64] = rf_alloc(size * sizeof(*addresses));
    int32_t *ports = rf_alloc(size * sizeof(*ports));
    int rc = RF_ENOMEM;
    snprintf(mine, sizeof(mine), "%s", address);
    if (gate) {
        gate->holders = 1;
        gate->listener = -1;
        gate->size = control->size;
        gate->key = *key;
        pthread_mutex_init(&gate->lock, NULL);
        gate->seats = rf_alloc(size * sizeof(*gate->seats));
    }
    if (gate && gate->seats && addresses && ports)
        rc = exchange(gate, control, mine, timeout_s, addresses, ports);
    else
        rf_fail(RF_ENOMEM, "no memory for the gates of %d ranks", control->size);
    rf_free(addresses);
    rf_free(ports);
    if (rc < 0) {
        rf_gate_release(gate);
        return rc;
    }
    *out = gate;
    return 0;
}
