/* SPDX-License-Identifier: MIT
 *
 * Makes a device of the library record nothing: absent hardware has a compiler, but no timelines,
 * memory or command buffers. Included by report.c.
 */
#ifndef RF_TESTS_KERNELS_RECORD_NOTHING_H
#define RF_TESTS_KERNELS_RECORD_NOTHING_H

#include "device/internal.h"

/* From now on the device's streams can record, but must never be submitted. */
void record_nothing(struct rf_device *device);

#endif
