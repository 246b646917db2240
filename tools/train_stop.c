/* SPDX-License-Identifier: MIT
 *
 * SIGTERM and SIGINT end `ringforge train` after the current step, on all ranks; a second one ends
 * this process at once. Signals belong to the process, so this state does, too.
 */
#include <errno.h>
#include <signal.h>

#include "train.h"

/* A terminal, a launcher and `timeout` may each forward the same request, and the second then
 * follows shortly after the first. */
#define SAME_REQUEST_NS 500000000ull

/* If several ranks have a reason, the highest counts. */
static const int signals[] = {[1] = SIGINT, [2] = SIGTERM};
enum { REASONS = sizeof(signals) / sizeof(signals[0]) };

static int
    asked; /* a reason; 0 = continue. Read by other threads than the one that is interrupted */
static uint64_t asked_ns;

static void on_signal(int number)
{
    const int error = errno;
    const uint64_t now = rf_now_ns();
    if (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&asked_ns, now, __ATOMIC_RELAXED);
        __atomic_store_n(&asked, number == SIGINT ? 1 : 2, __ATOMIC_RELEASE);
    } else if (now - __atomic_load_n(&asked_ns, __ATOMIC_RELAXED) >= SAME_REQUEST_NS) {
        signal(number, SIG_DFL);
        raise(number); /* delivered when this handler returns */
    }
    errno = error;
}

const volatile int *train_stop_flag(void)
{
    return &asked;
}

void train_stop_listen(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    for (int i = 1; i < REASONS; i++)
        sigaddset(&action.sa_mask, signals[i]);
    for (int i = 1; i < REASONS; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
}

int train_stop_signal(int reason)
{
    return reason > 0 && reason < REASONS ? signals[reason] : SIGTERM;
}
