/* SPDX-License-Identifier: MIT
 *
 * One non-blocking connection that carries frames, with its two buffers. Used while joining and
 * after it; belongs to one thread, or is guarded by its owner's lock.
 */
#ifndef RF_TRANSPORT_LINK_H
#define RF_TRANSPORT_LINK_H

#include <stdbool.h>

#include "frame.h"

struct rf_link {
    int fd; /* -1 = closed */
    uint8_t *in, *out;
    size_t in_start, in_end, in_capacity;
    size_t out_start, out_end, out_capacity;
    size_t max_payload; /* limit for received frames */
};

void rf_link_init(struct rf_link *link, int fd, size_t max_payload);
void rf_link_close(struct rf_link *link); /* also frees the buffers */
/* Copies the frame into the outgoing buffer; of a long frame only the part that the socket does not
 * accept now. RF_EPEER if the buffer has grown beyond its limit. */
int rf_link_queue(struct rf_link *link, int kind, int rank, uint32_t number, const void *payload,
                  size_t bytes);
/* Queues a frame RF_FRAME_REFUSE: a status and a sentence. rank: the rank that the error is about.
 */
int rf_link_queue_refusal(struct rf_link *link, int rank, int status, const char *text);
/* Writes as much as the socket accepts now. */
int rf_link_flush(struct rf_link *link);
bool rf_link_has_output(const struct rf_link *link);
/* Reads the available bytes: 1 = some arrived, 0 = none, RF_EPEER = the other end is closed. */
int rf_link_fill(struct rf_link *link);
/* Takes the next frame from the buffer: 1, 0 = none yet, RF_ECORRUPT. Its payload is valid until
 * the next call on this link. */
int rf_link_next(struct rf_link *link, struct rf_frame *out);
/* For joining: send everything, or wait for one frame, by a deadline. RF_ETIMEOUT. */
int rf_link_flush_by(struct rf_link *link, uint64_t deadline_ns);
int rf_link_next_by(struct rf_link *link, struct rf_frame *out, uint64_t deadline_ns);

#endif
