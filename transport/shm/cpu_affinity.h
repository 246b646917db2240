/* SPDX-License-Identifier: MIT
 *
 * To which core a rank moves that shares its own; for cpu_affinity.c and its test, which define
 * _GNU_SOURCE.
 */
#ifndef RF_TRANSPORT_CPU_AFFINITY_H
#define RF_TRANSPORT_CPU_AFFINITY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Those of the cores `mine` where fewest ranks wait; whether to go there from `core`: they must be
 * two fewer, since this one counts there, too. ranks: [CPU_SETSIZE], this one on `core`. */
bool rf_shm_emptier(const uint16_t *ranks, int core, const cpu_set_t *mine, cpu_set_t *out);

#endif
