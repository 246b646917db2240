/* SPDX-License-Identifier: MIT
 *
 * Compiler results of pipelines, kept in files, because GPUs' compilers take minutes. A pipeline is
 * identified by the hash of its SPIR-V, its constants and its subgroups; a file is for one build of
 * one driver and one device. Used by report.c and forms.c.
 */
#ifndef RF_TESTS_KERNELS_KEPT_H
#define RF_TESTS_KERNELS_KEPT_H

#include "device/internal.h"

/* From now on known pipelines of the device are not compiled: they have only a handle, and the kept
 * figures count as the driver's. Known are the pipelines in the files named by the environment:
 * KERNELS_KNOWN, which is read, and KERNELS_KEPT, which is also written. Pipelines that fail to
 * compile are never kept. */
void kept_begin(struct rf_device *device);
/* Writes all pipelines that this process met to KERNELS_KEPT. Returns the number of pipelines
 * compiled. */
uint32_t kept_end(void);

#endif
