/* SPDX-License-Identifier: MIT
 *
 * Failing a communicator, and the reason for it.
 */
#ifndef RF_COMM_FAILURE_H
#define RF_COMM_FAILURE_H

#include <ringforge/comm.h>
#include <stdatomic.h>

#include "../base/base.h"
#include "../coll/coll.h"

struct rf_comm;

enum { RF_FAILURE_TEXT = 280 };

/* The reason why a communicator failed: the same on all ranks, sent over the control link. For
 * RF_EMISMATCH with rank_a >= 0, a and b are the calls of rank_a and rank_b; an op of RF_COLL_NONE
 * is unknown. */
struct rf_failure {
    int32_t status, rank; /* rank: the one to blame; -1: none */
    uint64_t sequence;
    int32_t rank_a, rank_b;
    uint32_t of_job; /* the ranks in the message are ranks of the job, not of the communicator */
    struct rf_contract a, b;
    char message[RF_FAILURE_TEXT]; /* unused if it is derived from a and b */
};

/* Whether and why a communicator has failed. */
struct rf_failure_state {
    bool failed;
    bool unreported;         /* the worker failed, and no call has returned the error yet */
    bool left_out;           /* the survivors have continued without this rank */
    struct rf_error error;   /* the error that calls return */
    struct rf_failure cause; /* the failure behind `error` */
    atomic_uint abort_requested;
    char abort_reason[RF_FAILURE_TEXT];
};

/* ---- failure.c ------------------------------------------------------------------------------- */

/* Fails the communicator: stops the transport, keeps the error, and sends the failure to the other
 * ranks if `notify`. Returns failure->status, with the error as this thread's last. */
int rf_comm_fail(struct rf_comm *comm, const struct rf_failure *failure, bool notify);
int rf_comm_fail_mismatch(struct rf_comm *comm, int rank_a, const struct rf_contract *a, int rank_b,
                          const struct rf_contract *b);
int rf_comm_fail_text(struct rf_comm *comm, int status, int rank, const struct rf_contract *mine,
                      const char *format, ...) RF_PRINTF(5, 6);

/* The failure of `comm` as a failure of `other`, its parent. */
struct rf_failure rf_comm_failure_for(const struct rf_comm *comm, const struct rf_comm *other);

/* The status of a call on a communicator that has already failed. */
int rf_comm_failed_earlier(struct rf_comm *comm);

/* ---- failure_cause.c ------------------------------------------------------------------------- */

/* An operation has failed with `status`, and its text is this thread's last error. Finds the cause,
 * if necessary by waiting for events of the other ranks, and fails the communicator. suspect: the
 * peer whose message did not match; -1: unknown. */
int rf_comm_fail_operation(struct rf_comm *comm, int status, int suspect,
                           const struct rf_contract *mine);

/* Handles events for `ns`. True: one of them has failed the communicator. */
bool rf_comm_failed_within(struct rf_comm *comm, uint64_t ns);

#endif
