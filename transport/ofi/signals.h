/* SPDX-License-Identifier: MIT
 *
 * Keeps the program's signal dispositions over calls into libfabric that may install handlers.
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
    bool known[NSIG]; /* two are the C library's own */
    sigset_t mask;
    struct rf_object *objects; /* what was loaded */
    size_t object_count, object_capacity;
    uintptr_t library;
};

/* Remembers the dispositions of all signals, with flags and masks, and holds signals off this
 * thread. One thread at a time: others wait here until rf_signals_put_back, which must follow.
 * RF_ENOMEM: nothing was done. */
int rf_signals_keep(struct rf_signals *kept);
/* Puts back what was changed since to a handler of `library` (an address within libfabric; NULL:
 * it is not loaded), of what it brought, now or earlier, or to SIG_DFL or SIG_IGN. A handler that
 * another thread of the program has installed meanwhile stays. */
void rf_signals_put_back(struct rf_signals *kept, const void *library);

#endif
