/* SPDX-License-Identifier: MIT
 *
 * A queue that returns late: its batch has run by then, and the stream has submitted another one.
 * One at a time.
 */
#ifndef TESTS_DEVICE_SLOW_QUEUE_H
#define TESTS_DEVICE_SLOW_QUEUE_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The next batch of this stream goes to the slow queue. */
void slow_queue_place(struct rf_device *device, struct rf_stream *stream);
/* Whether that batch has run; the queue returns when the stream has submitted more. */
bool slow_queue_has_run(void);
/* Returns the number of batches. */
int slow_queue_remove(void);

#ifdef __cplusplus
}
#endif
#endif
