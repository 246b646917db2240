/* SPDX-License-Identifier: MIT
 *
 * One collective call: what it was called with, what follows from that, its compiled schedule, and
 * how it is run.
 */
#ifndef RF_COMM_CALL_H
#define RF_COMM_CALL_H

#include <ringforge/comm.h>

#include "../base/base.h"
#include "../coll/coll.h"

struct rf_comm;
struct rf_cache;
struct rf_call_record;

/* One call: its description, which the schedule and the contract are made of; its data; and what
 * its caller wants besides. */
struct rf_call {
    struct rf_coll_desc desc; /* what the caller said; rf_call_desc adds the communicator's part.
                                 root: -1 where there is none */
    const char *algorithm;    /* NULL: the table chooses */
    const void *in;
    void *out;
    struct rf_mover *mover; /* where desc.staged is set */
    const char *label;
    double timeout_s;              /* 0: the communicator's */
    struct rf_reduction reduction; /* of RF_CUSTOM; its name only as a hash */
    uint32_t reduction_hash;
    bool scaled;
    double scale;
    enum rf_dtype wire_dtype; /* of the messages; RF_F32: as the call's */
};

/* ---- cache.c --------------------------------------------------------------------------------- */

struct rf_cached {
    struct rf_call key; /* forest, counts and algorithm are copies of its own; no other pointers */
    struct rf_forest forest;
    void *memory; /* of the copies */
    struct rf_sched *sched;
    struct rf_contract contract; /* without sequence and label */
    uint32_t hash;
    int holders; /* who need it beyond the next look-up */
};
int rf_cache_create(struct rf_cache **out);
void rf_cache_destroy(struct rf_cache *cache);
/* The call's description with what the communicator knows: ranks, hosts, links. It points into the
 * call. */
struct rf_coll_desc rf_call_desc(const struct rf_comm *comm, const struct rf_call *call);
/* Forgets all: what is built from now on may be another algorithm. */
void rf_cache_clear(struct rf_cache *cache);
/* The compiled schedule of a call: built on first use. Valid until the next look-up, or for as long
 * as it is held. RF_EAGAIN: all places where it could be are held. */
RF_MUST_CHECK int rf_cache_find(struct rf_comm *comm, const struct rf_call *call,
                                const struct rf_cached **out);
void rf_cache_hold(const struct rf_cached *cached);
void rf_cache_release(const struct rf_cached *cached);

/* ---- operations.c ---------------------------------------------------------------------------- */

/* Argument checks of a collective, all but the buffers; and those in host memory. */
RF_MUST_CHECK int rf_call_check(const struct rf_comm *comm, const struct rf_call *call);
RF_MUST_CHECK int rf_call_check_buffers(const struct rf_comm *comm, const struct rf_call *call);
/* Checks and runs a call on host memory, with the caller's options. */
RF_MUST_CHECK int rf_call_start(struct rf_comm *comm, struct rf_call *call,
                                const struct rf_coll_opts *opts);
/* The sum of all ranks' counts. */
RF_MUST_CHECK int rf_call_sum(const struct rf_comm *comm, enum rf_coll_op op, const size_t *counts,
                              size_t *sum);
/* All to all with counts: whether what each rank sends is what the others expect. Collective,
 * blocking. */
RF_MUST_CHECK int rf_call_exchange_counts(struct rf_comm *comm, const struct rf_call *call,
                                          const struct rf_coll_opts *opts);
/* Elements of `in` and `out`. */
void rf_call_counts(const struct rf_comm *comm, const struct rf_call *call, size_t *in,
                    size_t *out);
/* Whether in and out, which overlap, do so in the one way that the operation allows. */
bool rf_call_in_place(const struct rf_comm *comm, const struct rf_call *call, uint64_t in,
                      uint64_t out);
/* Puts a new collective on record. The result is valid as long as it is remembered. */
const struct rf_call_record *rf_call_begin(struct rf_comm *comm, const struct rf_cached *cached,
                                           const char *label);
struct rf_exec_args rf_call_args(const struct rf_comm *comm, const struct rf_call *call,
                                 const struct rf_call_record *record);
/* Runs a checked call to its end. */
RF_MUST_CHECK int rf_comm_run(struct rf_comm *comm, const struct rf_call *call);
void rf_comm_trace(const struct rf_comm *comm, enum rf_coll_op op, size_t bytes, uint64_t start_ns);

/* ---- convert.c: scaled and 16-bit reductions --------------------------------------------------
 */

/* Memory for converted data, kept for the next call. */
struct rf_conversion {
    unsigned char *memory;
    size_t bytes;
};

static inline bool rf_call_converts(const struct rf_call *call)
{
    return call->scaled || call->wire_dtype != RF_F32;
}
RF_MUST_CHECK int rf_convert_check(const struct rf_call *call);
/* The call in the type of its messages, but for its buffers. */
struct rf_call rf_convert_plain(const struct rf_call *call);
/* Converts what goes in, and says where to: one call at a time. Then, when that call has ended,
 * what came out. */
RF_MUST_CHECK int rf_convert_begin(struct rf_comm *comm, const struct rf_call *call,
                                   struct rf_call *plain);
void rf_convert_end(struct rf_comm *comm, const struct rf_call *call, const struct rf_call *plain);

#endif
