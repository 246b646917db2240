/* SPDX-License-Identifier: MIT
 *
 * Groups: communicators of some of a communicator's ranks.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../family.h"
#include "../task.h"
#include "transport/transport.h"

static const double JOIN_TIMEOUT_S = 60;

struct color_key {
    int32_t color, key;
};

static bool before(const struct color_key *all, int a, int b)
{
    return all[a].key < all[b].key || (all[a].key == all[b].key && a < b);
}

/* The ranks of this rank's color, by key, then by rank. */
static int find_members(const struct color_key *all, int ranks, int color, int *members)
{
    int count = 0;
    for (int r = 0; r < ranks && color >= 0; r++) {
        if (all[r].color != color)
            continue;
        int at = count++;
        for (; at > 0 && before(all, r, members[at - 1]); at--)
            members[at] = members[at - 1];
        members[at] = r;
    }
    return count;
}

static int open_group(struct rf_comm *parent, const int *members, int count, struct rf_comm **out)
{
    struct rf_control *control = NULL;
    RETURN_IF_ERROR(rf_split_join(parent->links.control, members, count, JOIN_TIMEOUT_S, &control));
    if (count == 0)
        return 0;
    struct rf_comm *comm = rf_alloc(sizeof(*comm));
    if (!comm) {
        control->ops->leave(control, 0);
        return rf_fail(RF_ENOMEM, "no memory for a communicator");
    }
    comm->links.control = control;
    comm->rank = control->rank;
    comm->size = control->size;
    comm->settings.flush = parent->settings.flush;
    int rc = rf_family_join(comm, parent);
    if (rc == 0)
        rc = rf_comm_name_ranks(comm, parent, members);
    if (rc == 0)
        rc = rf_split_transport(control, parent->links.transport->name, &comm->links.transport,
                                comm->links.reason, sizeof(comm->links.reason));
    struct rf_comm_opts opts = {.timeout_s = parent->settings.timeout_s,
                                .checksum = parent->settings.checksum};
    rc = rf_comm_adopt(comm, &opts, rc, out);
    rf_set_thread_rank(rf_comm_job_rank(parent, parent->rank)); /* adopting has changed it */
    return rc;
}

int rf_comm_split(struct rf_comm *comm, int color, int key, struct rf_comm **out)
{
    if (!comm || !out)
        return rf_fail(RF_EINVAL, "split: the communicator or out is NULL");
    *out = NULL;
    RETURN_IF_ERROR(rf_group_refuse(comm, "split"));
    struct color_key mine = {color < 0 ? -1 : color, key};
    struct color_key *all = rf_alloc((size_t)comm->size * sizeof(*all));
    int *members = rf_alloc((size_t)comm->size * sizeof(*members));
    struct rf_coll_opts opts = {.label = "rf_comm_split"};
    int rc = all && members ? rf_all_gather(comm, &mine, all, 2, RF_I32, &opts)
                            : rf_fail(RF_ENOMEM, "no memory to split %d ranks", comm->size);
    if (rc == 0)
        rc = open_group(comm, members, find_members(all, comm->size, mine.color, members), out);
    comm->membership.has_groups |= rc == 0;
    rf_free(all);
    rf_free(members);
    return rc;
}
