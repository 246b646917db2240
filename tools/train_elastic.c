/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --elastic`: who continues after a rank was lost, and as which mesh.
 * train_rank.c has what they continue from.
 */
#include "train.h"

bool train_lost_a_rank(void)
{
    const int status = rf_last_error()->status;
    return status == RF_EPEER || status == RF_ETIMEOUT || status == RF_ENET || status == RF_EABORT;
}

/* The largest divisor of n that is at most `most`. */
static int largest_divisor(int n, int most)
{
    int d = most < n ? most : n;
    while (n % d != 0)
        d--;
    return d;
}

int train_mesh_left(const struct tool_command *command, const struct rf_mesh *from,
                    int64_t micro_batches, int ranks, struct rf_mesh *out)
{
    struct rf_mesh mesh = *from;
    while (ranks % mesh.tp != 0 || from->tp % mesh.tp != 0) /* cut tensors can be cut into fewer
                                                             * parts */
        mesh.tp--;
    mesh.cp = mesh.cp ? mesh.cp : 1;
    while (ranks % (mesh.tp * mesh.cp) != 0 || from->cp % mesh.cp != 0)
        mesh.cp--;
    const int places = ranks / mesh.tp / mesh.cp;
    int pp = mesh.pp < places ? mesh.pp : places;
    while (pp > 1 && (places % pp != 0 || places / pp > micro_batches))
        pp--;
    if (places / pp > micro_batches)
        return tool_error(command,
                          "%d ranks are left, of which --micro-batches %lld leaves some without "
                          "work: start again with --resume and fewer ranks",
                          ranks, (long long)micro_batches);
    mesh.pp = pp;
    mesh.dp = places / pp;
    if (mesh.shard)
        mesh.shard = largest_divisor(mesh.dp, mesh.shard);
    *out = mesh;
    return TOOL_OK;
}

void train_policy_left(const struct rf_mesh *from, const struct rf_mesh *mesh,
                       struct rf_policy *policy)
{
    if (mesh->tp == 1)
        policy->sequence_parallel = false;
    if (mesh->pp == from->pp)
        return;
    policy->stage_blocks = NULL; /* it is for the previous number of stages */
    policy->stage_count = 0;
    if (mesh->pp == 1)
        policy->stages = RF_STAGES_EVEN;
}

int train_shrink(const struct tool_command *command, struct rf_comm *comm, struct rf_comm **out)
{
    rf_comm_abort(comm, "a rank was lost; the others shrink"); /* so that all of them call it */
    return rf_comm_shrink(comm, 0, NULL, out) < 0 ? tool_library_error(command, rf_comm_rank(comm))
                                                  : TOOL_OK;
}
