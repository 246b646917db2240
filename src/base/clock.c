/* SPDX-License-Identifier: MIT
 *
 * Monotonic time, and waiting for it.
 */
#include <errno.h>
#include <limits.h>
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

uint64_t rf_seconds_to_ns(double seconds)
{
    const double ns = seconds * 1e9;
    if (!(ns > 0))
        return 0;
    return ns < 0x1p64 ? (uint64_t)ns : UINT64_MAX;
}

uint64_t rf_add_ns(uint64_t time_ns, uint64_t more_ns)
{
    return more_ns < UINT64_MAX - time_ns ? time_ns + more_ns : UINT64_MAX;
}

uint64_t rf_after_s(double seconds)
{
    return rf_add_ns(rf_now_ns(), rf_seconds_to_ns(seconds));
}

int rf_poll_ms(uint64_t until_ns, uint64_t now_ns)
{
    if (until_ns == UINT64_MAX)
        return -1;
    if (until_ns <= now_ns)
        return 0;
    const uint64_t ms = (until_ns - now_ns - 1) / 1000000 + 1;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

int rf_check_seconds(const char *call, double seconds)
{
    if (seconds >= 0)
        return 0;
    return rf_fail(
        RF_EINVAL,
        "%s: a timeout of %g s is not possible; use 0 for the default, or a positive number", call,
        seconds);
}
