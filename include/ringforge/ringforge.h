/* SPDX-License-Identifier: MIT
 *
 * ringforge: training of large models on any GPU with a Vulkan driver, on one process or many. This
 * header includes all others, and declares the functions of the library as a whole.
 */
#ifndef RINGFORGE_H
#define RINGFORGE_H

#include "chat.h"
#include "comm.h"
#include "data.h"
#include "device.h"
#include "flight.h"
#include "generate.h"
#include "host_step.h"
#include "layer.h"
#include "ops.h"
#include "parallel.h"
#include "schedule.h"
#include "search.h"
#include "status.h"
#include "tensor.h"
#include "tokenizer.h"
#include "train.h"
#include "types.h"
#include "weights.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RF_VERSION_MAJOR 0
#define RF_VERSION_MINOR 1
#define RF_VERSION_PATCH 0

/* "0.1.0" */
RF_EXPORT const char *rf_version(void);

/* ---- log and environment --------------------------------------------------------------------- */

/* Passes every log line (formatted, without a newline) to fn instead of stderr; NULL restores
 * stderr. fn may be called from any thread. level: 1 once per process, 2 once per object, 3 once
 * per step, 4 once per message. */
RF_EXPORT void rf_log_callback(void (*fn)(void *user, int level, const char *line), void *user);

/* An environment variable that the library reads: name, default value, and meaning. */
struct rf_env_row {
    const char *name, *fallback, *text; /* fallback: NULL = unset */
    const char *values;                 /* its valid values: "0|1"; NULL: any text */
    long least, most;                   /* of a number; both 0: not a number */
    const char *own; /* why it may differ between ranks; NULL: it must be equal, and is compared */
};

/* All environment variables, *count rows of constant data. */
RF_EXPORT const struct rf_env_row *rf_env_table(size_t *count);

/* ---- trace ----------------------------------------------------------------------------------- */

/* Starts to record events of all parts of the library in memory, at most a million. */
RF_EXPORT void rf_trace_start(void);

RF_EXPORT bool rf_trace_enabled(void);

/* Sets the rank of the calling thread in logs and traces. */
RF_EXPORT void rf_set_thread_rank(int rank);

/* Adds an event. track: the name of a stream, of a communicator (rf_comm_set_track), or any other.
 * Times: as rf_now_ns. */
RF_EXPORT void rf_trace_event(const char *track, const char *name, uint64_t start_ns,
                              uint64_t end_ns);

/* Collects the events of all ranks of comm (NULL: of this process) on its rank 0, which writes them
 * as Chrome/Perfetto JSON. Collective over comm; blocking. */
RF_API int rf_trace_write(const char *path, struct rf_comm *comm);

/* Nanoseconds of a monotonic clock. */
RF_EXPORT uint64_t rf_now_ns(void);

#ifdef __cplusplus
}
#endif
#endif
