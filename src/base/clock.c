/* SPDX-License-Identifier: MIT
 *
 * Monotonic time.
 */
#include <errno.h>
#include <ringforge/ringforge.h>
#include <time.h>

#include "base.h"

uint64_t rf_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void rf_sleep_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}
