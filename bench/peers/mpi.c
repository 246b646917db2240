/* SPDX-License-Identifier: MIT
 *
 * Collectives of an MPI library, measured as `ringforge bench --one-clock` measures its
 * own.
 *
 *   mpirun -n 4 ./mpi all_reduce 4 67108864 4 11
 */
#include <mpi.h>

#include "peer.h"

static void call(struct peer *p, const float *in, float *out, size_t count)
{
    const int n = (int)count, share = n / p->ranks;
    const MPI_Comm all = MPI_COMM_WORLD;
    if (strcmp(p->op, "all_reduce") == 0)
        MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, all);
    else if (strcmp(p->op, "all_gather") == 0)
        MPI_Allgather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, all);
    else if (strcmp(p->op, "reduce_scatter") == 0)
        MPI_Reduce_scatter_block(in, out, share, MPI_FLOAT, MPI_SUM, all);
    else if (strcmp(p->op, "broadcast") == 0)
        MPI_Bcast(out, n, MPI_FLOAT, 0, all);
    else if (strcmp(p->op, "reduce") == 0)
        MPI_Reduce(in, out, n, MPI_FLOAT, MPI_SUM, 0, all);
    else if (strcmp(p->op, "gather") == 0)
        MPI_Gather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, 0, all);
    else if (strcmp(p->op, "scatter") == 0)
        MPI_Scatter(in, share, MPI_FLOAT, out, share, MPI_FLOAT, 0, all);
    else
        MPI_Alltoall(in, share, MPI_FLOAT, out, share, MPI_FLOAT, all);
}

static double largest(struct peer *p, double seconds)
{
    double most = 0;
    MPI_Allreduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

int main(int argc, char **argv)
{
    struct peer p = {.call = call, .largest = largest};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    if (!peer_arguments(&p, argc, argv)) {
        fprintf(stderr, "use: mpi OP LEAST MOST FACTOR SAMPLES [rewrite]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    peer_run(&p);
    MPI_Finalize();
    return 0;
}
