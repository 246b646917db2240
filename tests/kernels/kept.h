/* SPDX-License-Identifier: MIT
 *
 * What compilers of GPUs made of pipelines, kept in files: compilers take minutes for what they
 * said the last time. A pipeline is known by the hash of its SPIR-V, its constants and its
 * subgroups; a file is of one build of one driver for one device. Used by report.c and forms.c.
 */
#ifndef RF_TESTS_KERNELS_KEPT_H
#define RF_TESTS_KERNELS_KEPT_H

#include "device/internal.h"

/* From now on pipelines of the device that are known are not compiled: they exist in name only, and
 * what is kept of them counts as what the driver says. Known are those of the files that the
 * environment names: KERNELS_KNOWN, which is read, and KERNELS_KEPT, which is also written.
 * Pipelines that fail to compile are never kept. */
void kept_begin(struct rf_device *device);
/* Writes to KERNELS_KEPT all that this process met. Returns how many of them it compiled. */
uint32_t kept_end(void);

#endif
