/* SPDX-License-Identifier: MIT
 *
 * The flight recorder: what each rank's communicators have called lately, in files that survive the
 * process, whatever kills it. With RF_FLIGHT=DIR in the environment every communicator of more than
 * one rank keeps a file there, mapped into memory, with its last 1024 collectives; `ringforge
 * flight DIR` merges them and says who was late or different. Point-to-point calls are not
 * recorded.
 */
#ifndef RINGFORGE_FLIGHT_H
#define RINGFORGE_FLIGHT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_flight_call {
    struct rf_contract contract;
    uint32_t hash; /* of the call, with what the contract has no field for (counts, algorithm) */
    int status;    /* enum rf_status; meaningful once it has ended */
    int64_t started_ns, ended_ns; /* of the system's clock, since 1970; ended_ns 0: it never did */
};

struct rf_flight {
    char job[33]; /* the same on all ranks of one communicator, and no other */
    char host[64], provider[32];
    int rank, size;
    int64_t pid;
    struct rf_flight_call *calls; /* by sequence */
    size_t count;
};

/* Reads one file, whatever state its writer left it in; entries that were being written are left
 * out. Free with rf_flight_free. Errors: RF_EIO, RF_ECORRUPT (no such file of this version). */
RF_API int rf_flight_read(const char *path, struct rf_flight **out);
RF_EXPORT void rf_flight_free(struct rf_flight *flight);

/* "all_reduce(1000 f32 sum)": what a call is, in words. Returns text. */
RF_EXPORT const char *rf_contract_text(const struct rf_contract *contract, char *text,
                                       size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
