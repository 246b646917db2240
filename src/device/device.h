/* SPDX-License-Identifier: MIT
 *
 * What the layers above may use of the device beyond the public header: the kernel cache, and hooks
 * for the tests of the barrier checker.
 */
#ifndef RF_DEVICE_DEVICE_H
#define RF_DEVICE_DEVICE_H

#include <ringforge/device.h>

/* The device's kernel for this SPIR-V and these specialization constants: compiled on first use,
 * kept until the device is closed. Keyed by desc->spirv (the pointer), specs, push_bytes and
 * subgroup_size. Thread-safe. */
RF_MUST_CHECK int rf_device_kernel(struct rf_device *device, const struct rf_kernel_desc *desc,
                                   struct rf_kernel **out);

/* Tests: leaves out the nth (from 1) barrier between commands of one submission that the stream
 * would record from now on; 0 = none. */
void rf_stream_skip_barrier(struct rf_stream *stream, uint64_t nth);
/* Barriers put between commands of one submission so far, and conflicts that the checker has found.
 */
uint64_t rf_stream_barriers(const struct rf_stream *stream);
uint64_t rf_stream_conflicts(const struct rf_stream *stream);

/* Warnings and errors of the validation layer so far; always 0 unless RF_VALIDATION=1 was set when
 * the device was opened (which then fails where the layer is not installed). */
uint64_t rf_device_validation_messages(const struct rf_device *device);

/* Tests: the next submission is refused as if the device had been lost. */
void rf_device_fail_next_submit(struct rf_device *device);

#endif
