/* SPDX-License-Identifier: MIT
 *
 * What a gather costs at the root, and at the others, apart from each other: the root begins 0.1 s
 * late, so that the others never wait for it and all messages lie ready for it. On more ranks than
 * cores a common loop shows the scheduler's work instead. Medians of 15 rounds, in microseconds of
 * a call; the processor's time of the process beside.
 *
 *   ringforge run --ranks N -- late_root CALLS BYTES       (RF_PROVIDER=tcp; BYTES of each rank)
 *   mpirun -n N peers/late_root_openmpi CALLS BYTES        made with -DRF_BENCH_MPI by
 * peers/build.sh
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#ifdef RF_BENCH_MPI
#include <mpi.h>
#else
#include <ringforge/comm.h>
#endif

enum { ROUNDS = 15, LATE_US = 100000 };

struct job {
    int rank, ranks;
#ifndef RF_BENCH_MPI
    struct rf_comm *comm;
#endif
};

#ifdef RF_BENCH_MPI
static int join(struct job *j)
{
    int rc = MPI_Init(NULL, NULL) || MPI_Comm_rank(MPI_COMM_WORLD, &j->rank);
    return rc || MPI_Comm_size(MPI_COMM_WORLD, &j->ranks);
}

static int wait_for_all(struct job *j)
{
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int gather(struct job *j, const float *in, float *out, int count)
{
    return MPI_Gather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static int leave(struct job *j)
{
    return MPI_Finalize();
}
#else
static int join(struct job *j)
{
    if (rf_comm_open("env:", NULL, &j->comm) < 0)
        return 1;
    j->rank = rf_comm_rank(j->comm);
    j->ranks = rf_comm_size(j->comm);
    return 0;
}

static int wait_for_all(struct job *j)
{
    return rf_barrier(j->comm, NULL);
}

static int gather(struct job *j, const float *in, float *out, int count)
{
    return rf_gather(j->comm, in, out, (size_t)count, RF_F32, 0, NULL);
}

static int leave(struct job *j)
{
    return rf_comm_close(j->comm);
}
#endif

static int measure(struct job *j, int calls, int count)
{
    float *in = calloc((size_t)count, sizeof(*in));
    float *out = calloc((size_t)count * (size_t)j->ranks, sizeof(*out));
    double wall[ROUNDS], work[ROUNDS];
    int rc = in && out ? 0 : 1;
    for (int round = 0; round < ROUNDS && rc == 0; round++) {
        rc = wait_for_all(j);
        if (j->rank == 0)
            usleep(LATE_US);
        const double start = clock_s(CLOCK_MONOTONIC), used = clock_s(CLOCK_PROCESS_CPUTIME_ID);
        for (int i = 0; i < calls && rc == 0; i++)
            rc = gather(j, in, out, count);
        wall[round] = 1e6 * (clock_s(CLOCK_MONOTONIC) - start) / calls;
        work[round] = 1e6 * (clock_s(CLOCK_PROCESS_CPUTIME_ID) - used) / calls;
    }
    if (rc == 0) {
        sort_samples(wall, ROUNDS);
        sort_samples(work, ROUNDS);
        printf("rank %d: %.2f us a call, %.2f us of the processor\n", j->rank, wall[ROUNDS / 2],
               work[ROUNDS / 2]);
    }
    free(in);
    free(out);
    return rc;
}

int main(int argc, char **argv)
{
    struct job j = {0};
    const int calls = argc > 1 ? atoi(argv[1]) : 100, bytes = argc > 2 ? atoi(argv[2]) : 4096;
    if (calls < 1 || bytes < (int)sizeof(float)) {
        fprintf(stderr, "use: late_root CALLS BYTES\n");
        return 2;
    }
    if (join(&j) != 0) {
        fprintf(stderr, "late_root: the job did not start\n");
        return 1;
    }
    const int rc = measure(&j, calls, bytes / (int)sizeof(float));
    return leave(&j) != 0 || rc != 0;
}
