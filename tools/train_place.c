/* SPDX-License-Identifier: MIT
 *
 * The assignment of the job's ranks to places in the mesh: ranks that exchange most are on one
 * host.
 */
#include <stdio.h>
#include <stdlib.h>

#include "train.h"

/* The number of ranks of a mesh that should be neighbours on one host. */
static int neighbours(const struct rf_mesh *mesh)
{
    const int shard = mesh->shard > 1 ? mesh->shard : 1;
    return mesh->tp > 1 ? mesh->tp : mesh->cp > 1 ? mesh->cp : shard;
}

static void say(struct rf_comm *comm, const int32_t *order, int together)
{
    fprintf(stderr,
            "ranks of the job in the order of the mesh, %d of one host together:", together);
    for (int r = 0; r < rf_comm_size(comm); r++)
        fprintf(stderr, " %d", (int)order[r]);
    fprintf(stderr, "\n");
}

int train_place(const struct tool_command *command, struct rf_comm *comm,
                const struct rf_mesh *mesh, struct rf_comm **out)
{
    const int together = neighbours(mesh), size = rf_comm_size(comm);
    const int32_t rank = rf_comm_rank(comm);
    *out = NULL;
    if (together == 1)
        return TOOL_OK;
    if (rf_comm_by_host(comm, together, out) < 0)
        return tool_library_error(command, rank);
    if (!*out)
        return TOOL_OK;
    int32_t *order = calloc((size_t)size, sizeof(*order));
    int status = order ? TOOL_OK : tool_error(command, "out of memory");
    if (status == TOOL_OK && rf_all_gather(*out, &rank, order, 1, RF_I32, NULL) < 0)
        status = tool_library_error(command, rank);
    if (status == TOOL_OK && rank == 0)
        say(comm, order, together);
    free(order);
    return status;
}
