/* SPDX-License-Identifier: MIT
 *
 * Launchers and their variables; see launchers.c.
 */
#ifndef RF_TRANSPORT_LAUNCHERS_H
#define RF_TRANSPORT_LAUNCHERS_H

#include <ringforge/comm.h>

struct rf_launcher {
    const char *rank, *size;
    const char *also; /* must also be set; NULL: nothing */
    const char *name;
};

/* In order of priority. */
const struct rf_launcher *rf_launcher_rows(int *count);

#endif
