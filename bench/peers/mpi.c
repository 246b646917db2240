/* SPDX-License-Identifier: MIT
 *
 * Collectives of an MPI library, measured as `ringforge bench` measures its own.
 *
 *   mpirun -n 4 ./mpi all_reduce 4 67108864 4 11
 */
#include <mpi.h>

#include "peer.h"

static void call(struct peer *p, const float *in, float *out, size_t count)
{
    const int n = (int)count, share = n / p->ranks;
    switch (p->op[4]) {
    case 'r': /* all_reduce */
        MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 'g': /* all_gather */
        MPI_Allgather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case 'c': /* reduce_scatter */
        MPI_Reduce_scatter_block(in, out, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    default:
        MPI_Bcast(out, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
    }
}

static double slowest(struct peer *p, double seconds)
{
    double most = 0;
    MPI_Allreduce(&seconds, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

int main(int argc, char **argv)
{
    struct peer p = {.call = call, .slowest = slowest};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.ranks);
    if (!peer_arguments(&p, argc, argv)) {
        fprintf(stderr, "use: mpi OP LEAST MOST FACTOR SAMPLES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    peer_run(&p);
    MPI_Finalize();
    return 0;
}
