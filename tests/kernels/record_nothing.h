/* SPDX-License-Identifier: MIT
 *
 * Makes a device of the library record nothing: hardware that is not there has no timelines, no
 * memory and no command buffers, only a compiler. Included by report.c.
 */
#ifndef RF_TESTS_KERNELS_RECORD_NOTHING_H
#define RF_TESTS_KERNELS_RECORD_NOTHING_H

#include "device/internal.h"

/* From now on the device's streams may be recorded and never submitted. */
void record_nothing(struct rf_device *device);

#endif
