/* SPDX-License-Identifier: MIT
 *
 * One collective call: its arguments, values derived from them, its compiled schedule, and running
 * it.
 */
#ifndef RF_COMM_CALL_H
#define RF_COMM_CALL_H

#include <ringforge/comm.h>

#include "../base/base.h"
#include "../coll/coll.h"

struct rf_comm;
struct rf_cache;
struct rf_call_record;

/* One call: its description, from which the schedule and the contract are made; its data; and other
 * options of the caller. */
struct rf_call {
    struct rf_coll_desc desc; /* the caller's arguments; rf_call_desc adds the communicator's part.
                               * root: -1 if there is none */
    const char *algorithm;    /* NULL: the table chooses */
    const void *in;
    void *out;
    struct rf_mover *mover; /* if desc.staged is set */
    const char *label;
    double timeout_s;              /* 0: the communicator's */
    struct rf_reduction reduction; /* for RF_CUSTOM; its name only as a hash */
    uint32_t reduction_hash;
    bool scaled;
    double scale;
    enum rf_dtype wire_dtype; /* of the messages; RF_F32: the call's own type */
};

/* ---- cache.c --------------------------------------------------------------------------------- */

/* A compiled schedule and the call that it was built for. */
struct rf_cached {
    struct rf_call key; /* with copies of forest, counts and algorithm; no other pointers */
    struct rf_forest forest;
    void *memory; /* of these copies */
    struct rf_sched *sched;
    struct rf_contract contract; /* without sequence and label */
    uint32_t hash;
    int holders;  /* it is not dropped while this is > 0 */
    bool is_last; /* it belongs to the call in struct rf_last_call, if that points here */
};

/* The last plain call: with equal pieces, and without options that change how it runs. Calls
 * repeat, and checking the arguments and looking up the schedule takes a fifth of a short call's
 * time. */
struct rf_last_call {
    struct rf_call call;      /* its label: the last call's */
    struct rf_cached *cached; /* NULL: none. Valid only if is_last is set. Read is_last only on the
                               * thread that owns the cache. */
};

int rf_cache_create(struct rf_cache **out);
void rf_cache_destroy(struct rf_cache *cache);

/* The call's description with the communicator's part: ranks, hosts, links. It points into the
 * call. */
struct rf_coll_desc rf_call_desc(const struct rf_comm *comm, const struct rf_call *call);

/* Drops all schedules, because later ones may use other algorithms. */
void rf_cache_clear(struct rf_cache *cache);

/* The compiled schedule of a call, built on first use. Valid until the next look-up, or until
 * released if it is held. RF_EAGAIN: all entries for it are held. */
RF_MUST_CHECK int rf_cache_find(struct rf_comm *comm, const struct rf_call *call,
                                struct rf_cached **out);
void rf_cache_hold(struct rf_cached *cached);
void rf_cache_release(struct rf_cached *cached);

/* ---- call_check.c ---------------------------------------------------------------------------- */

/* Checks the arguments of a collective except its buffers; checks buffers in host memory. */
RF_MUST_CHECK int rf_call_check(const struct rf_comm *comm, const struct rf_call *call);
RF_MUST_CHECK int rf_call_check_buffers(const struct rf_comm *comm, const struct rf_call *call);

/* The sum of all ranks' counts. */
RF_MUST_CHECK int rf_call_sum(const struct rf_comm *comm, enum rf_coll_op op, const size_t *counts,
                              size_t *sum);

/* The number of elements of `in` and `out`. */
void rf_call_counts(const struct rf_comm *comm, const struct rf_call *call, size_t *in,
                    size_t *out);

/* Whether in and out, which overlap, overlap in the one way that the operation allows. */
bool rf_call_in_place(const struct rf_comm *comm, const struct rf_call *call, uint64_t in,
                      uint64_t out);

/* ---- call_start.c ---------------------------------------------------------------------------- */

/* Checks a call on host memory, then runs it, queues it, or adds it to the group. */
RF_MUST_CHECK int rf_call_start(struct rf_comm *comm, struct rf_call *call,
                                const struct rf_coll_opts *opts);
/* The same for the call in comm->last, which has been checked and has its schedule. */
RF_MUST_CHECK int rf_call_repeat(struct rf_comm *comm);

/* ---- calls.c --------------------------------------------------------------------------------- */

/* The call of a description, without its buffers. */
RF_MUST_CHECK int rf_call_take(const struct rf_comm *comm, const struct rf_coll_desc *desc,
                               const struct rf_coll_opts *opts, struct rf_call *call);

/* All to all with counts: compares the send counts of each rank with the counts that the others
 * expect. Collective, blocking. */
RF_MUST_CHECK int rf_call_exchange_counts(struct rf_comm *comm, const struct rf_call *call,
                                          const struct rf_coll_opts *opts);

/* ---- operations.c ---------------------------------------------------------------------------- */

/* Records a collective. The result is valid while the history keeps it. */
const struct rf_call_record *rf_call_begin(struct rf_comm *comm, const struct rf_cached *cached,
                                           const char *label);
struct rf_exec_args rf_call_args(const struct rf_comm *comm, const struct rf_call *call,
                                 const struct rf_call_record *record);

/* Runs a checked call to its end. */
RF_MUST_CHECK int rf_comm_run(struct rf_comm *comm, const struct rf_call *call);
/* The same for a call that needs no conversion and whose schedule is known. */
RF_MUST_CHECK int rf_comm_run_cached(struct rf_comm *comm, const struct rf_call *call,
                                     const struct rf_cached *cached);
void rf_comm_trace(const struct rf_comm *comm, enum rf_coll_op op, size_t bytes, uint64_t start_ns);

/* ---- convert.c: scaled and 16-bit reductions ------------------------------------------------- */

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

/* The call in the type of its messages, without its buffers. */
struct rf_call rf_convert_plain(const struct rf_call *call);

/* Converts the input, and sets the buffers of `plain`; after that call, converts its output. One
 * call at a time. */
RF_MUST_CHECK int rf_convert_begin(struct rf_comm *comm, const struct rf_call *call,
                                   struct rf_call *plain);
void rf_convert_end(struct rf_comm *comm, const struct rf_call *call, const struct rf_call *plain);

#endif
