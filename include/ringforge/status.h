/* SPDX-License-Identifier: MIT
 *
 * Status codes and error reports. Every function that can fail returns 0 or one of the negative
 * codes below. It writes its results through its last pointer arguments, and only on success.
 * rf_last_error() has the reason for a failure, as a sentence and as data.
 */
#ifndef RINGFORGE_STATUS_H
#define RINGFORGE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RF_MUST_CHECK __attribute__((warn_unused_result))
#define RF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define RF_EXPORT __attribute__((visibility("default")))
#else
#define RF_MUST_CHECK
#define RF_PRINTF(fmt, args)
#define RF_EXPORT
#endif
#define RF_API RF_EXPORT RF_MUST_CHECK

#ifdef __cplusplus
extern "C" {
#endif

/* The meaning of a number never changes. */
#define RF_STATUS_LIST(X)                                                                          \
    X(RF_OK, 0, "success")                                                                         \
    X(RF_EINVAL, -1, "bad argument")                                                               \
    X(RF_ENOMEM, -2, "out of memory")                                                              \
    X(RF_ENODEV, -3, "no usable device")                                                           \
    X(RF_EIO, -4, "file could not be read or written")                                             \
    X(RF_ENOTSUP, -5, "not supported here")                                                        \
    X(RF_EPEER, -6, "a peer died or left")                                                         \
    X(RF_EMISMATCH, -7, "ranks disagree about a collective call")                                  \
    X(RF_ETIMEOUT, -8, "deadline passed")                                                          \
    X(RF_EABORT, -9, "the communicator failed earlier or was aborted")                             \
    X(RF_EAUTH, -10, "wrong or missing job key")                                                   \
    X(RF_EDEVICE, -11, "the device or its driver reported an error")                               \
    X(RF_ENET, -12, "the network or its provider reported an error")                               \
    X(RF_ECORRUPT, -13, "damaged data")                                                            \
    X(RF_EBUSY, -14, "in use, or not finished yet")                                                \
    X(RF_EAGAIN, -15, "try again")

enum rf_status {
#define RF_STATUS_ENUM(name, number, text) name = number,
    RF_STATUS_LIST(RF_STATUS_ENUM)
#undef RF_STATUS_ENUM
};

/* The contract of a call: the call of this rank, as other ranks see it. If two ranks have different
 * contracts for one call, both get RF_EMISMATCH, with both contracts. An empty label matches any.
 */
struct rf_contract {
    uint64_t sequence; /* number of operations that this communicator has started before */
    uint64_t count;    /* elements, as the caller gave them */
    uint8_t op;        /* enum rf_coll_op */
    uint8_t dtype;     /* enum rf_dtype */
    uint8_t redop;     /* enum rf_redop; 0 if the operation does not reduce */
    uint8_t order;     /* enum rf_order */
    int32_t root;      /* root or peer; -1: none. For the forest operations the number of leaves,
                        * for the prefix operation the round */
    uint8_t algorithm; /* number of the algorithm that the caller has named; 0 = chosen by size */
    char label[39];    /* call-site label, truncated and zero-terminated; empty = none */
};

/* The last error of the calling thread. */
struct rf_error {
    int status;                /* enum rf_status */
    int rank;                  /* the rank the error is about; -1 = none */
    uint64_t sequence;         /* of the collective that failed; 0 = none */
    struct rf_contract mine;   /* for RF_EMISMATCH */
    struct rf_contract theirs; /* for RF_EMISMATCH */
    char message[768];         /* one sentence: what is wrong and what to do */
};

/* The last error of the calling thread. Never NULL. Valid until the next failing call of this
 * thread. */
RF_EXPORT const struct rf_error *rf_last_error(void);

/* For functions that the library calls, such as those of a block: stores one sentence on what is
 * wrong and what to do, which rf_last_error() then has, and returns status. Call it where the error
 * is detected, and pass the status on unchanged. A longer sentence is cut. */
RF_EXPORT int rf_fail(int status, const char *format, ...) RF_PRINTF(2, 3);

/* The description of a status code in the list above. Never NULL. */
RF_EXPORT const char *rf_status_text(int status);

/* The name of a status code, "RF_EINVAL". Never NULL. */
RF_EXPORT const char *rf_status_name(int status);

#ifdef __cplusplus
}
#endif
#endif
