/* SPDX-License-Identifier: MIT
 *
 * A queue that returns late: what it was given has run by then, and the stream that gave it has
 * sent something else. One at a time.
 */
#ifndef TESTS_DEVICE_SLOW_QUEUE_H
#define TESTS_DEVICE_SLOW_QUEUE_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The next batch of this stream is given to it. */
void slow_queue_place(struct rf_device *device, struct rf_stream *stream);
/* Whether that has run; the queue returns when the stream has sent more. */
bool slow_queue_has_run(void);
/* Returns how many batches there were. */
int slow_queue_remove(void);

#ifdef __cplusplus
}
#endif
#endif
