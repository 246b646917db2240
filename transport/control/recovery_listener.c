/* SPDX-License-Identifier: MIT
 *
 * Opens the recovery listener of a rank and exchanges the endpoints of all ranks.
 */
#include "recovery_listener.h"

#include <unistd.h>

#include "base/base.h"
#include "control.h"
#include "socket.h"

struct rf_recovery_listener *rf_recovery_listener_retain(struct rf_recovery_listener *recovery)
{
    atomic_fetch_add(&recovery->references, 1);
    return recovery;
}

void rf_recovery_listener_release(struct rf_recovery_listener *recovery)
{
    if (!recovery || atomic_fetch_sub(&recovery->references, 1) > 1)
        return;
    if (recovery->fd >= 0)
        close(recovery->fd);
    pthread_mutex_destroy(&recovery->lock);
    rf_free(recovery->endpoints);
    rf_free(recovery);
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

/* A rank that joined over loopback is on rank 0's host, and has its address. */
static void set_hosts(struct rf_recovery_listener *recovery, char (*addresses)[64],
                      bool *everywhere)
{
    *everywhere = false;
    for (int r = 0; r < recovery->size; r++) {
        addresses[r][63] = 0;
        *everywhere = *everywhere || !is_loopback(addresses[r]);
    }
    for (int r = 0; r < recovery->size; r++)
        snprintf(recovery->endpoints[r].host, sizeof(recovery->endpoints[r].host), "%s",
                 addresses[is_loopback(addresses[r]) ? 0 : r]);
}

static int exchange_endpoints(struct rf_recovery_listener *recovery, struct rf_control *control,
                              const char mine[64], double timeout_s, char (*addresses)[64],
                              int32_t *ports)
{
    bool everywhere;
    int port = 0;
    RETURN_IF_ERROR(control->ops->all_gather(control, mine, 64, addresses, timeout_s));
    set_hosts(recovery, addresses, &everywhere);
    if (rf_socket_listen(recovery->endpoints[control->rank].host, 0, everywhere, &recovery->fd,
                         &port) < 0) {
        rf_log("transport", 1, "no recovery listener, so survivors could not find this rank: %s",
               rf_last_error()->message);
        port = 0;
    }
    const int32_t own = port;
    RETURN_IF_ERROR(control->ops->all_gather(control, &own, sizeof(own), ports, timeout_s));
    for (int r = 0; r < recovery->size; r++)
        recovery->endpoints[r].port = ports[r] > 0 && ports[r] < 65536 ? ports[r] : 0;
    return 0;
}

int rf_recovery_listener_open(struct rf_control *control, const struct rf_job_key *key,
                              const char *address, double timeout_s,
                              struct rf_recovery_listener **out)
{
    char mine[64] = {0};
    const size_t size = (size_t)control->size;
    struct rf_recovery_listener *recovery = rf_alloc(sizeof(*recovery));
    char(*addresses)[64] = rf_alloc(size * sizeof(*addresses));
    int32_t *ports = rf_alloc(size * sizeof(*ports));
    int rc = RF_ENOMEM;
    snprintf(mine, sizeof(mine), "%s", address);
    if (recovery) {
        recovery->references = 1;
        recovery->fd = -1;
        recovery->size = control->size;
        recovery->key = *key;
        pthread_mutex_init(&recovery->lock, NULL);
        recovery->endpoints = rf_alloc(size * sizeof(*recovery->endpoints));
    }
    if (recovery && recovery->endpoints && addresses && ports)
        rc = exchange_endpoints(recovery, control, mine, timeout_s, addresses, ports);
    else
        rf_fail(RF_ENOMEM, "no memory for the endpoints of %d ranks", control->size);
    rf_free(addresses);
    rf_free(ports);
    if (rc < 0) {
        rf_recovery_listener_release(recovery);
        return rc;
    }
    *out = recovery;
    return 0;
}
