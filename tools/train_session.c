/* SPDX-License-Identifier: MIT
 *
 * What train_rank.c and train_move.c both need of one rank of `ringforge train`: its plan, the end
 * of its run, and what it says of a failure. Calls neither of them.
 */
#include "trainer.h"

#define GPU_WORKSPACE (32u << 20)

/* Before there are parameters that are worth it nobody goes on without others. */
void trainer_note_loss(struct trainer *t)
{
    const bool goes_on = t->placed || t->snapshot || t->newcomer;
    t->lost = t->o->elastic && t->ranks > 1 && goes_on && train_lost_a_rank();
}

int trainer_failed(struct trainer *t)
{
    trainer_note_loss(t);
    return tool_library_error(t->command, t->ranks > 1 ? t->rank : -1);
}

int trainer_build_plan(const struct trainer *t, const struct rf_mesh *mesh, struct rf_plan **out)
{
    const struct train_options *o = t->o;
    struct rf_policy policy = o->setup.policy;
    if (o->setup.workspace < 0 && rf_device_get_info(t->device)->kind != RF_DEVICE_CPU)
        policy.workspace_bytes = GPU_WORKSPACE;
    train_policy_left(&o->setup.mesh, mesh, &policy);
    return rf_plan_build(t->model.blocks, t->model.count, mesh, &policy, t->rank, out);
}

void trainer_close_session(struct trainer *t)
{
    rf_run_close(t->run);
    rf_plan_destroy(t->plan);
    t->run = NULL;
    t->plan = NULL;
}
