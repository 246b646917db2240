/* SPDX-License-Identifier: MIT
 *
 * Preserves the program's signal dispositions across calls into libfabric that may install
 * handlers.
 */
#ifndef RF_TRANSPORT_SIGNALS_H
#define RF_TRANSPORT_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rf_object {
    uintptr_t from, to; /* of a loaded library or program */
};
struct rf_signals {
    struct sigaction before[NSIG];
    bool known[NSIG]; /* two belong to the C library */
    sigset_t mask;
    struct rf_object *objects; /* the loaded objects */
    size_t object_count, object_capacity;
    uintptr_t library;
};

/* Saves the dispositions of all signals, with flags and masks, and blocks signals on this thread.
 * One thread at a time: others wait here until rf_signals_put_back, which must follow. RF_ENOMEM:
 * no effect. */
int rf_signals_keep(struct rf_signals *kept);
/* Restores dispositions that have since changed to a handler of `library` (an address within
 * libfabric; NULL: not loaded), to a handler of an object that it loaded, now or earlier, or to
 * SIG_DFL or SIG_IGN. A handler that another thread of the program has installed meanwhile stays.
 */
void rf_signals_put_back(struct rf_signals *kept, const void *library);

#endif
