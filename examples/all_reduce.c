/* SPDX-License-Identifier: MIT
 *
 * Sums one number per rank. Start it on four ranks with
 *     ringforge run --ranks 4 -- ./all_reduce
 */
#include <ringforge/ringforge.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    struct rf_comm *comm = NULL;
    if (rf_comm_open(getenv("RANK") ? "env:" : "self:", NULL, &comm) < 0) {
        fprintf(stderr, "%s\n", rf_last_error()->message);
        return 1;
    }
    float mine = (float)(rf_comm_rank(comm) + 1), sum = 0;
    int rc = rf_all_reduce(comm, &mine, &sum, 1, RF_F32, RF_SUM, NULL);
    if (rc < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    else
        printf("rank %d of %d: the sum is %g\n", rf_comm_rank(comm), rf_comm_size(comm), sum);
    int closed = rf_comm_close(comm); /* compares the calls of all ranks */
    if (rc == 0 && closed < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    return rc < 0 || closed < 0;
}
