/* SPDX-License-Identifier: MIT
 *
 * How far apart two cores of this machine are while something else is measured. A virtual machine
 * may be moved, and with it the time of everything that passes from core to core.
 */
#ifndef RF_BENCH_STATE_H
#define RF_BENCH_STATE_H

#include <stdbool.h>

struct bench_state;

/* From now on, 50 times a second, a line of the cache goes 192 times from one core to another and
 * back, between two threads of this process. That takes as long as the line does (20 to 80 us where
 * this was written), and at most 2 ms where one of the threads does not get its core. NULL: there
 * is only one core, or no memory. */
struct bench_state *bench_state_begin(void);
/* Ends that, and finds out whether there were two states. */
void bench_state_end(struct bench_state *state);
void bench_state_free(struct bench_state *state);

/* After the end. */
bool bench_state_has_two(const struct bench_state *state);
/* Nanoseconds there and back, the median of the near (or only) state, or of the distant one. */
double bench_state_ns(const struct bench_state *state, bool distant);
/* Which was there from `began` to `ended`, in seconds of the monotonic clock. 0: near; 1: distant;
 * -1: both, or it is not known. */
int bench_state_between(const struct bench_state *state, double began, double ended);

#endif
