/* SPDX-License-Identifier: MIT
 *
 * Shared by train_rank.c and train_move.c for one rank of `ringforge train`: its plan, the end of
 * its run, and its report of a failure. Calls neither of them.
 */
#include <string.h>

#include "trainer.h"

#define GPU_WORKSPACE (32u << 20)

/* Before there are parameters that are worth it nobody continues without others. */
void trainer_note_loss(struct trainer *t)
{
    const bool goes_on = t->placed || t->snapshot || t->newcomer;
    t->lost = t->o->elastic && !t->sync && t->ranks > 1 && goes_on && train_lost_a_rank();
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
    train_store_policy(o, &policy);
    train_policy_left(&o->setup.mesh, mesh, &policy);
    return rf_plan_build((struct rf_blocks){t->model.blocks, t->model.count}, mesh, &policy,
                         t->rank, out);
}

/* Only in a process that is one rank: nobody else reads its options. */
static int take_settings(struct trainer *t, const char *text)
{
    struct train_options *o = t->job->options;
    const bool packing = o->packing;
    const char *chat = o->chat;
    int status = train_settings_take(t->command, o, text);
    setup_close(&o->setup);
    if (status == TOOL_OK)
        status = train_check(t->command, o);
    if (status != TOOL_OK || (packing == o->packing && chat == o->chat))
        return status;
    rf_dataset_close(t->job->dataset);
    t->job->dataset = NULL;
    status = train_open_data(t->command, o, &t->job->dataset);
    t->dataset = t->job->dataset;
    if (status == TOOL_OK)
        train_settings_hash(o, t->dataset);
    return status;
}

int trainer_share_settings(struct trainer *t)
{
    char *own = train_settings_text(t->o, t->dataset, t->lr);
    int64_t bytes = own ? (int64_t)strlen(own) + 1 : 0;
    int status = own ? TOOL_OK : tool_error(t->command, "out of memory");
    if (status == TOOL_OK && rf_broadcast(t->comm, &bytes, 1, RF_I64, 0, NULL) < 0)
        status = trainer_failed(t);
    char *text =
        status == TOOL_OK && bytes > 0 && bytes < 1 << 20 ? calloc(1, (size_t)bytes) : NULL;
    if (status == TOOL_OK && !text)
        status = tool_error(t->command, "out of memory");
    if (text && t->rank == 0)
        memcpy(text, own, (size_t)bytes);
    if (status == TOOL_OK && rf_broadcast(t->comm, text, (size_t)bytes, RF_U8, 0, NULL) < 0)
        status = trainer_failed(t);
    if (status == TOOL_OK && strcmp(text, own) != 0)
        status = take_settings(t, text);
    free(own);
    free(text);
    return status;
}

void trainer_close_session(struct trainer *t)
{
    rf_run_close(t->run);
    rf_plan_destroy(t->plan);
    t->run = NULL;
    t->plan = NULL;
}
