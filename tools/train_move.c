/* SPDX-License-Identifier: MIT
 *
 * One rank of `ringforge train` changes its communicator: to that of the survivors, to a larger one
 * with newcomers, or, as a newcomer, to that of a running job. Called by train_rank.c.
 */
#include "trainer.h"

/* What this rank needs before it leaves its run for a larger one: a plan of that, and a snapshot.
 */
static int prepare_to_grow(struct trainer *t, const struct rf_mesh *mesh)
{
    struct rf_plan *plan = NULL;
    int rc = trainer_build_plan(t, mesh, &plan);
    rf_plan_destroy(plan);
    return rc < 0 ? rc : rf_run_snapshot(t->run, &t->progress, &t->snapshot);
}

/* Takes in as many newcomers as fit. Until there is a larger communicator nothing changes for this
 * one.
 */
static int grow(struct trainer *t, int32_t count)
{
    struct rf_mesh mesh = t->mesh;
    char why[380] = "it has no room on another rank for what a larger job takes: waiting";
    (void)train_mesh_grown(t->o, &t->mesh, t->ranks + count, &mesh); /* it fits on rank 0 */
    if (rf_run_save_wait(t->run) < 0)
        return trainer_failed(t);
    int32_t fault = prepare_to_grow(t, &mesh) < 0, faults = 0;
    if (fault) {
        snprintf(why, sizeof(why), "it cannot grow: %.340s; waiting", rf_last_error()->message);
        tool_library_error(t->command, t->rank);
    }
    if (rf_all_reduce(t->comm, &fault, &faults, 1, RF_I32, RF_SUM, NULL) < 0)
        return trainer_failed(t);
    const int rc =
        faults ? RF_EAGAIN : train_grow(t->o, t->comm, t->join_listener, count, &t->grown);
    if (rc == 0) {
        t->mesh = mesh;
        t->joined = count;
        return TOOL_OK;
    }
    if (rc != RF_EAGAIN)
        return trainer_failed(t);
    rf_snapshot_destroy(t->snapshot);
    t->snapshot = NULL;
    if (t->rank == 0 && faults)
        rf_join_listener_set_status(t->join_listener, why);
    else if (t->rank == 0)
        tool_error(t->command, "%s; the job continues without newcomers", rf_last_error()->message);
    return TOOL_OK;
}

int trainer_take_newcomers(struct trainer *t)
{
    int32_t count = t->rank == 0 ? train_newcomers(t->join_listener, t->o, &t->mesh, t->ranks) : 0;
    if (rf_run_share(t->run, &count, sizeof(count)) < 0)
        return trainer_failed(t);
    return count > 0 ? grow(t, count) : TOOL_OK;
}

void trainer_be_in(struct trainer *t, struct rf_comm *comm)
{
    t->comm = comm;
    t->rank = rf_comm_rank(comm);
    t->ranks = rf_comm_size(comm);
}

int trainer_place(struct trainer *t)
{
    struct rf_comm *placed = NULL;
    const int status = train_place(t->command, t->comm, &t->mesh, &placed);
    if (status != TOOL_OK)
        trainer_note_loss(t);
    if (!placed)
        return status;
    if (t->comm != t->first && rf_comm_close(t->comm) < 0 && status == TOOL_OK)
        (void)tool_library_error(t->command, t->rank);
    trainer_be_in(t, placed);
    return status;
}

int trainer_share_job_state(struct trainer *t, struct train_job_state *state)
{
    const struct rf_policy *p = &t->o->setup.policy;
    *state = (struct train_job_state){.wanted = t->o->setup.mesh,
                                      .mesh = t->mesh,
                                      .batch = p->batch,
                                      .micro_batches = p->micro_batches,
                                      .seed = t->progress.seed,
                                      .lr = t->lr};
    const int status = trainer_share_settings(t);
    if (status != TOOL_OK)
        return status;
    return train_share_job_state(t->comm, state) < 0 ? trainer_failed(t) : TOOL_OK;
}

int trainer_move(struct trainer *t)
{
    struct train_job_state state;
    t->placed = false;
    t->again = true;
    trainer_close_session(t);
    (void)rf_comm_close(t->comm); /* the larger one reports ranks lost meanwhile */
    if (t->first != t->comm)
        (void)rf_comm_close(t->first);
    t->first = NULL;
    trainer_be_in(t, t->grown);
    t->grown = NULL;
    const int status = trainer_share_job_state(t, &state);
    return status == TOOL_OK ? trainer_place(t) : status;
}

int trainer_join(struct trainer *t, struct train_options *o)
{
    struct train_job_state state;
    struct rf_comm *comm = NULL;
    int status = train_join(t->command, o, &comm);
    if (status != TOOL_OK)
        return status;
    trainer_be_in(t, comm);
    t->again = true;
    status = trainer_share_job_state(t, &state);
    if (status != TOOL_OK)
        return status;
    train_take_job_state(o, &state);
    t->mesh = state.mesh;
    t->progress.seed = state.seed;
    t->lr = state.lr;
    t->newcomer = true; /* from now on it could continue with others that are left */
    return TOOL_OK;
}

int trainer_shrink(struct trainer *t)
{
    struct rf_comm *left = NULL;
    t->lost = false;
    t->again = true;
    t->joined = 0;
    if (t->placed) {
        rf_snapshot_destroy(t->snapshot);
        t->snapshot = NULL;
    }
    if (t->placed && rf_run_snapshot(t->run, &t->progress, &t->snapshot) < 0)
        tool_library_error(t->command, t->rank); /* others may have the needed state */
    t->placed = t->under_way = false;
    trainer_close_session(t);
    int status = train_shrink(t->command, t->comm, &left);
    if (status != TOOL_OK)
        return status;
    if (t->comm != t->first)
        (void)rf_comm_close(t->comm); /* reports why it failed */
    trainer_be_in(t, left);
    status =
        train_mesh_left(t->command, &t->mesh, t->o->setup.policy.micro_batches, t->ranks, &t->mesh);
    return status == TOOL_OK ? trainer_place(t) : status;
}

/* If a communicator failed before, the others have continued without it. */
int trainer_close_comms(struct trainer *t, int status)
{
    if (t->comm && t->comm != t->first && rf_comm_close(t->comm) < 0 && status == TOOL_OK)
        status = tool_library_error(t->command, t->rank);
    const bool left = t->first && t->o->elastic && rf_comm_async_error(t->first) < 0;
    if (t->first && rf_comm_close(t->first) < 0 && !left && status == TOOL_OK)
        status = tool_library_error(t->command, t->ranks > 1 ? t->rank : -1);
    return status;
}
