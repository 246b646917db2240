/* SPDX-License-Identifier: MIT
 *
 * What a plan's device memory holds at its peak, for `plan` and for the last line of `train --log`.
 */
#ifndef RF_TOOLS_PLAN_PEAK_H
#define RF_TOOLS_PLAN_PEAK_H

#include "setup.h"

enum { PLAN_PEAK_ROWS = 10 };

/* Adds "peak", the kinds that hold most, each with the cheapest option that makes it smaller, and
 * "peak_rest", the bytes of the others. */
void plan_peak_json(const struct rf_held held[RF_HELD_COUNT], const struct setup *setup,
                    cJSON *json);
void plan_peak_print(const struct rf_held held[RF_HELD_COUNT], const struct setup *setup);

#endif
