/* SPDX-License-Identifier: MIT
 *
 * Subnormal numbers in sums on the host are treated as the devices of the ranks treat them, so that
 * a sum has the same bits wherever it is computed. Called by users, training, and comm.c.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../task.h"

struct answer {
    int32_t status; /* of the query of the rank's own device */
    uint16_t flushes, can_flush;
};

static int fail_flush(int rank)
{
    return rf_fail_rank(RF_ENOTSUP, rank,
                        "the device of a rank takes subnormal numbers for 0, which the processor "
                        "of rank %d cannot do in sums of several ranks; set RF_FLUSH_SUBNORMALS=0 "
                        "on every rank if their bits need not be those of one rank",
                        rank);
}

int rf_comm_set_flush(struct rf_comm *comm, bool flush)
{
    if (flush && !rf_can_flush())
        return fail_flush(comm->rank);
    comm->settings.flush = flush;
    return 0;
}

/* The stricter of all ranks' answers. */
static int agree(struct rf_comm *comm, struct answer mine, bool *flush)
{
    struct rf_control *control = comm->links.control;
    const struct rf_error own = *rf_last_error();
    struct answer *all = rf_alloc((size_t)comm->size * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory to compare the devices of %d ranks", comm->size);
    int rc = control->ops->all_gather(control, &mine, sizeof(mine), all, comm->settings.timeout_s);
    *flush = comm->settings.flush;
    for (int r = 0; rc == 0 && r < comm->size; r++)
        *flush |= all[r].flushes != 0;
    if (rc == 0 && mine.status < 0)
        rc = rf_fail_error(&own);
    for (int r = 0; rc == 0 && r < comm->size; r++)
        if (all[r].status < 0)
            rc = rf_fail_rank(all[r].status, r,
                              "rank %d could not ask its device about subnormal numbers (%s); its "
                              "message says why",
                              r, rf_status_text(all[r].status));
    for (int r = 0; rc == 0 && *flush && r < comm->size; r++)
        if (!all[r].can_flush)
            rc = fail_flush(r);
    rf_free(all);
    return rc;
}

int rf_comm_follow(struct rf_comm *comm, int status, bool flushes)
{
    const struct answer mine = {.status = status, .flushes = flushes, .can_flush = rf_can_flush()};
    bool flush = false;
    RETURN_IF_ERROR(agree(comm, mine, &flush));
    if (flush && !comm->settings.flush && comm->rank == 0)
        rf_log("comm", 1,
               "kernels of %s take subnormal numbers for 0: so do the sums of several ranks",
               flushes ? "this device" : "another rank's device");
    return rf_comm_set_flush(comm, flush);
}

int rf_comm_follow_device(struct rf_comm *comm, struct rf_device *device)
{
    bool flushes = false;
    if (!comm || !device)
        return rf_fail(RF_EINVAL, "follow_device: the communicator or the device is NULL");
    RETURN_IF_ERROR(rf_group_refuse(comm, "follow_device"));
    RETURN_IF_ERROR(rf_comm_enter(comm));
    if (comm->size == 1)
        return 0;
    const int status = rf_device_flushes_subnormals(device, &flushes);
    return rf_comm_follow(comm, status, flushes);
}

bool rf_comm_flushes_subnormals(const struct rf_comm *comm)
{
    return comm->settings.flush;
}
