/* SPDX-License-Identifier: MIT
 *
 * The numbers that the ranks of a group have in the job.
 */
#include "../communicator.h"

int rf_comm_name_ranks(struct rf_comm *comm, const struct rf_comm *parent, const int *members)
{
    comm->layout.job_ranks = rf_alloc((size_t)comm->size * sizeof(*comm->layout.job_ranks));
    if (!comm->layout.job_ranks)
        return rf_fail(RF_ENOMEM, "no memory for a group of %d ranks", comm->size);
    for (int r = 0; r < comm->size; r++)
        comm->layout.job_ranks[r] =
            parent->layout.job_ranks ? parent->layout.job_ranks[members[r]] : members[r];
    return 0;
}

int rf_comm_rank_from_job(const struct rf_comm *comm, int job_rank)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (rf_comm_job_rank(comm, rank) == job_rank)
            return rank;
    return -1;
}
