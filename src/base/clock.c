/* SPDX-License-Identifier: MIT
 *
 * Monotonic time, and waiting for it.
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

void rf_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool rf_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
    const struct timespec until = {(time_t)(until_ns / 1000000000u),
                                   (long)(until_ns % 1000000000u)};
    if (until_ns == UINT64_MAX)
        return pthread_cond_wait(cond, lock) == 0;
    return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}

uint64_t rf_after_s(double seconds)
{
    return rf_now_ns() + (uint64_t)(seconds > 0 ? seconds * 1e9 : 0);
}
