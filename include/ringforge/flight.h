/* SPDX-License-Identifier: MIT
 *
 * The flight recorder: a file for each rank with the last calls of its communicators, which
 * survives the process however it ends. With RF_FLIGHT=DIR in the environment, every communicator
 * of more than one rank maps a file there into memory and keeps its last 1024 collectives in it.
 * `ringforge flight DIR` merges the files, and tells which rank was late or made a different call.
 * Point-to-point calls are not recorded.
 */
#ifndef RINGFORGE_FLIGHT_H
#define RINGFORGE_FLIGHT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_flight_call {
    struct rf_contract contract;
    uint32_t hash; /* of the arguments that the contract has no field for (counts, algorithm) */
    int status;    /* enum rf_status; valid if the call has ended */
    int64_t started_ns, ended_ns; /* system clock, since 1970; ended_ns 0: it did not end */
};

/* One file: the calls of one rank on one communicator. */
struct rf_flight {
    char job[33]; /* equal on all ranks of a communicator, and unique to it */
    char host[64], provider[32];
    int rank, size;
    int64_t pid;
    struct rf_flight_call *calls; /* by sequence */
    size_t count;
};

/* Reads one file, whatever state its writer left it in. Incomplete entries are omitted. Free it
 * with rf_flight_free. Errors: RF_EIO, RF_ECORRUPT (not a file of this version). */
RF_API int rf_flight_read(const char *path, struct rf_flight **out);

RF_EXPORT void rf_flight_free(struct rf_flight *flight);

/* Writes a call as text, "all_reduce(1000 f32 sum)", at most `bytes`; returns text. */
RF_EXPORT const char *rf_contract_text(const struct rf_contract *contract, char *text,
                                       size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
