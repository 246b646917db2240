/* SPDX-License-Identifier: MIT
 *
 * Recovery of loopback ranks: the remaining ranks make a world of their own. Under the lock of the
 * old world the last of them decides for all, or the first whose timeout ends. Called by
 * survivors.c.
 */
#include <time.h>

#include "../control/quorum.h"
#include "base/base.h"
#include "loopback.h"

/* Called with the world locked, as are the functions below. */
static bool is_complete(const struct rf_loopback *world)
{
    for (int r = 0; r < world->size; r++) {
        const struct rf_loop_rank *rank = &world->ranks[r];
        if (!rank->recovering && !rank->dead && !rank->left)
            return false;
    }
    return true;
}

static int check_quorum(struct rf_loopback *world)
{
    const size_t size = (size_t)world->size;
    bool *here = rf_alloc(2 * size * sizeof(*here));
    if (!here)
        return rf_fail(RF_ENOMEM, "shrink: no memory to count %d ranks", world->size);
    bool *gone = here + size;
    for (size_t r = 0; r < size; r++) {
        const struct rf_loop_rank *rank = &world->ranks[r];
        here[r] = rank->recovering && !rank->dead;
        gone[r] = rank->dead || rank->left;
    }
    int rc = rf_quorum_has(here, gone, world->size) ? 0 : rf_quorum_fail(here, gone, world->size);
    rf_free(here);
    return rc;
}

/* Refuses all ranks in this recovery, with this thread's last error. */
static void refuse_all(struct rf_loopback *world)
{
    world->refusal = *rf_last_error();
    for (int r = 0; r < world->size; r++) {
        struct rf_loop_rank *rank = &world->ranks[r];
        rank->refused = rank->recovering;
        rank->recovering = false;
    }
    pthread_cond_broadcast(&world->changed);
}

static int decide(struct rf_loopback *world)
{
    int count = 0, rc = 0;
    for (int r = 0; r < world->size; r++)
        count += world->ranks[r].recovering && !world->ranks[r].dead;
    world->survivors = NULL;
    if (count > 1)
        rc = rf_loop_create_group(world, count, &world->survivors);
    for (int r = 0, new_rank = 0; r < world->size; r++) {
        struct rf_loop_rank *rank = &world->ranks[r];
        bool taken = rank->recovering && !rank->dead;
        rank->new_rank = taken ? new_rank++ : -1;
        rank->left_out = rank->left_out || !taken;
        rank->recovering = false;
    }
    world->recoveries++;
    pthread_cond_broadcast(&world->changed);
    return rc;
}

static int recover(struct rf_loopback *world, struct rf_loop_rank *self, double timeout_s)
{
    const uint64_t number = world->recoveries;
    const uint64_t deadline_ns = rf_after_s(timeout_s);
    self->recovering = true;
    pthread_cond_broadcast(&world->changed);
    bool late = false;
    self->refused = false;
    while (world->recoveries == number && !self->dead && !self->left_out && !self->refused) {
        if ((late || is_complete(world)) && check_quorum(world) < 0)
            refuse_all(world);
        else if (late || is_complete(world))
            RETURN_IF_ERROR(decide(world));
        else
            late = !rf_cond_wait(&world->changed, &world->lock, deadline_ns);
    }
    self->recovering = false;
    if (self->dead)
        return rf_fail_rank(RF_ENET, self->control.rank, "rank %d was killed by the fault injector",
                            self->control.rank);
    if (self->refused)
        return rf_fail_error(&world->refusal);
    if (self->left_out)
        return rf_fail_rank(RF_EPEER, self->control.rank,
                            "shrink: the others have gone on without rank %d, which came too late",
                            self->control.rank);
    return 0;
}

int rf_loop_survivors(struct rf_control *control, double timeout_s, int *members, int *count,
                      struct rf_control **out)
{
    struct rf_loopback *world = rf_loop_world(control);
    struct rf_loop_rank *self = &world->ranks[control->rank];
    struct rf_loopback *next = NULL;
    pthread_mutex_lock(&world->lock);
    int rc = recover(world, self, timeout_s), new_rank = self->new_rank;
    *count = 0;
    for (int r = 0; rc == 0 && r < world->size; r++)
        if (world->ranks[r].new_rank >= 0)
            members[(*count)++] = r;
    next = world->survivors;
    pthread_mutex_unlock(&world->lock);
    if (rc == 0 && *count > 1 && !next)
        rc = rf_fail(RF_ENOMEM, "no memory for a world of the survivors");
    if (rc < 0)
        return rc;
    rc = *count > 1 ? rf_loopback_control(next, new_rank, out) : rf_self_control(out);
    if (rc == 0)
        (*out)->host = control->host;
    return rc;
}
