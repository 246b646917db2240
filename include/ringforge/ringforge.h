/* SPDX-License-Identifier: MIT
 *
 * ringforge: train large models on any GPU that speaks Vulkan, on one process or many.
 * This header includes all the others, and holds what concerns the library as a whole.
 */
#ifndef RINGFORGE_H
#define RINGFORGE_H

#include "comm.h"
#include "data.h"
#include "device.h"
#include "flight.h"
#include "host_step.h"
#include "ops.h"
#include "parallel.h"
#include "search.h"
#include "status.h"
#include "tensor.h"
#include "train.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RF_VERSION_MAJOR 0
#define RF_VERSION_MINOR 1
#define RF_VERSION_PATCH 0

/* "0.1.0" */
RF_EXPORT const char *rf_version(void);

/* Receives every log line (already formatted, no newline) instead of stderr; NULL restores stderr.
 * Called from any thread. level 1 once per process, 2 once per object, 3 once per step, 4 per
 * message. */
RF_EXPORT void rf_log_callback(void (*fn)(void *user, int level, const char *line), void *user);

/* One row of the table of environment variables that the library reads. */
struct rf_env_row {
    const char *name, *fallback, *text;
};
RF_EXPORT const struct rf_env_row *rf_env_table(size_t *count);

/* Tracing: events of all layers, kept in memory (at most a million) until written. */
RF_EXPORT void rf_trace_start(void);
RF_EXPORT bool rf_trace_enabled(void);
/* Names the calling thread's rank in logs and traces. */
RF_EXPORT void rf_set_thread_rank(int rank);
/* Adds an event by hand: track is a stream's name, "comm" (rf_comm_set_track) or one of your own;
 * times are rf_now_ns. */
RF_EXPORT void rf_trace_event(const char *track, const char *name, uint64_t start_ns,
                              uint64_t end_ns);
/* Gathers all ranks' events to rank 0 of `comm` (NULL: this process only), which writes
 * Chrome/Perfetto JSON. Collective. */
RF_API int rf_trace_write(const char *path, struct rf_comm *comm);
/* Monotonic clock. */
RF_EXPORT uint64_t rf_now_ns(void);

#ifdef __cplusplus
}
#endif
#endif
