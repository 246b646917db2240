/* SPDX-License-Identifier: MIT
 *
 * Jobs within a job: the first member of each group opens a listener (or a loopback world), the
 * addresses of all first members are exchanged over the parent's control link, and each rank joins
 * its own group. Called by comm.
 */
#include <unistd.h>

#include "../control/control.h"
#include "../control/socket.h"
#include "../loopback/loopback.h"
#include "base/base.h"
#include "join.h"

/* The record that the first member of a group sends to all ranks. */
struct offer {
    char host[64];
    uint32_t port; /* 0: the member could not open one */
    uint8_t job[RF_JOB_BYTES];
    struct rf_loopback *world; /* ranks are threads of one process */
};

static int rank_in_group(const struct rf_control *parent, const int *members, int count)
{
    for (int i = 0; i < count; i++)
        if (members[i] == parent->rank)
            return i;
    return -1;
}

static int open_listener(struct rf_control *parent, struct rf_rendezvous *rendezvous,
                         struct offer *offer)
{
    rf_control_local_address(parent, rendezvous->host, sizeof(rendezvous->host));
    RETURN_IF_ERROR(
        rf_socket_listen(rendezvous->host, 0, false, &rendezvous->listener, &rendezvous->port));
    rendezvous->listens = true;
    snprintf(offer->host, sizeof(offer->host), "%.63s", rendezvous->host);
    offer->port = (uint32_t)rendezvous->port;
    rf_random(offer->job, sizeof(offer->job));
    return 0;
}

/* Every rank takes part, even if its own listener failed; the first failure is kept. */
static int exchange(struct rf_control *parent, const struct offer *mine, int rc, double timeout_s,
                    struct offer *all)
{
    struct rf_error error = *rf_last_error();
    int gathered = parent->ops->all_gather(parent, mine, sizeof(*mine), all, timeout_s);
    return rc < 0 ? rf_fail_error(&error) : gathered;
}

static int join_group(const struct offer *offer, int first, struct rf_rendezvous *rendezvous,
                      struct rf_control **out)
{
    if (offer->world)
        return rf_loopback_control(offer->world, rendezvous->rank, out);
    if (offer->port == 0)
        return rf_fail_rank(RF_EPEER, first, "split: rank %d could not open the group's listener",
                            first);
    snprintf(rendezvous->host, sizeof(rendezvous->host), "%.63s", offer->host);
    rendezvous->port = (int)offer->port;
    memcpy(rendezvous->key.job, offer->job, sizeof(offer->job));
    return rf_rendezvous_join(rendezvous, out);
}

int rf_split_join(struct rf_control *parent, const int *members, int count, double timeout_s,
                  struct rf_control **control)
{
    const struct rf_job_key *key = rf_control_key(parent);
    struct rf_rendezvous rendezvous = {.rank = rank_in_group(parent, members, count),
                                       .size = count,
                                       .timeout_s = timeout_s,
                                       .parent = parent,
                                       .members = members,
                                       .member_count = count};
    struct offer mine = {{0}}, *all = rf_alloc((size_t)parent->size * sizeof(*all));
    int rc = all ? 0 : rf_fail(RF_ENOMEM, "no memory to split %d ranks", parent->size);
    if (!all)
        return rc;
    if (key)
        rendezvous.key = *key;
    if (rendezvous.rank == 0 && count > 1)
        rc = key ? open_listener(parent, &rendezvous, &mine)
                 : rf_loop_create_group(rf_loop_world(parent), count, &mine.world);
    rc = exchange(parent, &mine, rc, timeout_s, all);
    *control = NULL;
    if (rc < 0 && rendezvous.listens)
        close(rendezvous.listener);
    else if (rc == 0 && count == 1)
        rc = rf_self_control(control);
    else if (rc == 0 && count > 1)
        rc = join_group(&all[members[0]], members[0], &rendezvous, control);
    if (rc == 0 && *control)
        (*control)->host = parent->host;
    rf_free(all);
    return rc;
}

int rf_split_transport(struct rf_control *control, const char *provider, struct rf_transport **out,
                       char *why, size_t why_bytes)
{
    struct rf_loopback *world = rf_loop_world(control);
    if (!world)
        return rf_transport_create(control, provider, out, why, why_bytes);
    snprintf(why, why_bytes, "ranks are threads of one process");
    return control->size == 1 ? rf_self_transport(out)
                              : rf_loopback_transport(world, control->rank, out);
}
