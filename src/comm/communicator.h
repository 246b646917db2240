/* SPDX-License-Identifier: MIT
 *
 * The communicator. Its parts are declared in the headers of their subjects: call.h, call_record.h,
 * failure.h, family.h, peer.h, staging.h and wait.h. No layer but comm includes them.
 *
 * One thread at a time uses a communicator: its owner, or the worker while asynchronous work is
 * outstanding. So only the queue between the two is locked.
 */
#ifndef RF_COMM_COMMUNICATOR_H
#define RF_COMM_COMMUNICATOR_H

#include <ringforge/comm.h>
#include <ringforge/flight.h>
#include <stdatomic.h>

#include "../base/base.h"
#include "../base/transport_interface.h"
#include "../coll/coll.h"
#include "call.h"
#include "call_record.h"
#include "failure.h"
#include "family.h"
#include "peer.h"
#include "staging.h"
#include "wait.h"

enum {
    /* The lowest bit of the communicator field of tags: a transport serves only one communicator,
     * so the field only separates collectives from point to point. */
    RF_TAG_COLLECTIVE = 0,
    RF_TAG_P2P = 1,
    RF_INFLIGHT = 8, /* recorded asynchronous collectives at the same time */
};

struct rf_p2p;
struct rf_async;
struct rf_group;
struct rf_p2p_op;
struct rf_slot;
struct rf_task;

/* The settings of calls. All ranks have agreed on all except timeout_s. */
struct rf_comm_settings {
    double timeout_s; /* for a call without its own */
    size_t segment_bytes;
    bool checksum;
    bool flush; /* sums and products: subnormal operands and results are 0 */
};

/* The locations of the ranks. */
struct rf_comm_layout {
    int *job_ranks; /* [size] each rank's number in the first communicator; NULL: the same */
    int *hosts;     /* [size] counted from 0 in the order of their first ranks; NULL: one host */
};

/* The connections to the other ranks. */
struct rf_comm_links {
    struct rf_transport *transport; /* as created by the transport layer */
    struct rf_transport *demux;     /* the same without point to point, for the executors */
    struct rf_control *control;
    struct rf_coll_model *model; /* of measured links; NULL: not measured */
    char reason[256];            /* why this provider was chosen */
};

struct rf_executors {
    struct rf_exec *blocking;         /* for blocking calls; all[0] */
    struct rf_exec *all[RF_INFLIGHT]; /* NULL: not needed so far */
};

struct rf_comm {
    int rank, size;
    struct rf_last_call last;
    struct rf_comm_settings settings;
    struct rf_comm_layout layout;
    struct rf_comm_links links;
    struct rf_family_membership membership;

    struct rf_executors executors;
    struct rf_cache *cache;
    struct rf_conversion conversion;
    struct rf_comm_staging staging;
    struct rf_p2p *p2p;
    struct rf_async *async;
    struct rf_group *group; /* NULL: calls run at once */

    struct rf_call_history history;
    struct rf_peers peers;
    struct rf_wait_state wait;
    struct rf_failure_state failure;
};

/* ---- enter.c --------------------------------------------------------------------------------- */

/* Waits for asynchronous work. Fails on a failed communicator. */
RF_MUST_CHECK int rf_comm_ready(struct rf_comm *comm);

/* The same, and handles events. (Collectives handle events once their contract is recorded.) */
RF_MUST_CHECK int rf_comm_enter(struct rf_comm *comm);

static inline bool rf_comm_has_events(const struct rf_comm *comm)
{
    return (__atomic_load_n(&comm->links.control->pending, __ATOMIC_RELAXED) |
            atomic_load_explicit(&comm->failure.abort_requested, memory_order_relaxed)) != 0;
}

/* ---- comm.c ---------------------------------------------------------------------------------- */

/* Opens a communicator whose control link, transport, rank and size are set, and takes ownership of
 * it, even on failure. rc < 0: setting them has failed, so it is only freed. */
int rf_comm_adopt(struct rf_comm *comm, const struct rf_comm_opts *opts, int rc,
                  struct rf_comm **out);

/* ---- ranks.c --------------------------------------------------------------------------------- */

/* Sets job_ranks of a group with these members of the parent. */
RF_MUST_CHECK int rf_comm_name_ranks(struct rf_comm *comm, const struct rf_comm *parent,
                                     const int *members);

/* A rank's number in the first communicator, used in logs and traces. */
static inline int rf_comm_job_rank(const struct rf_comm *comm, int rank)
{
    return comm->layout.job_ranks ? comm->layout.job_ranks[rank] : rank;
}

/* The rank of this communicator with that number in the job; -1: none. */
int rf_comm_rank_from_job(const struct rf_comm *comm, int job_rank);

/* ---- hosts.c --------------------------------------------------------------------------------- */

/* Sets layout.hosts from the host identifiers of all ranks, `stride` bytes apart. */
RF_MUST_CHECK int rf_hosts_number(struct rf_comm *comm, const uint64_t *first, size_t stride);

/* ---- subnormals.c ---------------------------------------------------------------------------- */

/* RF_ENOTSUP: this rank's processor does not support it. */
RF_MUST_CHECK int rf_comm_set_flush(struct rf_comm *comm, bool flush);

/* rf_comm_follow_device, with the answer of this rank's device, or the status of the query.
 * Collective. */
RF_MUST_CHECK int rf_comm_follow(struct rf_comm *comm, int status, bool flushes);

/* ---- links.c --------------------------------------------------------------------------------- */

/* Measures the links for at most 50 ms. From then on, algorithms are chosen by the result.
 * Collective. */
RF_MUST_CHECK int rf_links_measure(struct rf_comm *comm);

#endif
