/* SPDX-License-Identifier: MIT
 *
 * The communicator itself. What it is made of is in the headers of its parts: call.h,
 * call_record.h, peer.h, failure.h, wait.h, family.h, task.h, p2p.h, staging.h. Nobody outside comm
 * includes them.
 *
 * One thread at a time works with a communicator: its owner, or the worker while asynchronous work
 * is outstanding (then the owner waits). So nothing here is locked but the worker's queue.
 */
#ifndef RF_COMM_COMMUNICATOR_H
#define RF_COMM_COMMUNICATOR_H

#include <ringforge/comm.h>
#include <ringforge/flight.h>
#include <stdatomic.h>

#include "../base/base.h"
#include "../base/wire.h"
#include "../coll/coll.h"
#include "call.h"
#include "call_record.h"
#include "failure.h"
#include "peer.h"
#include "wait.h"

enum {
    RF_HISTORY = 256, /* own contracts kept, so that a late accusation can be answered */
    /* The lowest bit of the communicator field of tags: one transport serves one communicator, so
     * the field only keeps collectives and point to point apart. */
    RF_WIRE_COLLECTIVE = 0,
    RF_WIRE_POINT = 1,
    RF_INFLIGHT = 8, /* asynchronous collectives on record at the same time */
};

struct rf_recorder;
struct rf_family;
struct rf_cache;
struct rf_p2p;
struct rf_async;
struct rf_group;
struct rf_p2p_op;
struct rf_staging;
struct rf_slot;
struct rf_task;

struct rf_comm {
    int rank, size;
    double timeout_s;
    struct rf_transport *wire; /* as the transport layer made it */
    struct rf_transport
        *demux; /* the same, less what belongs to point to point: for the executor */
    struct rf_control *control;
    struct rf_exec *exec;               /* of blocking calls */
    struct rf_exec *execs[RF_INFLIGHT]; /* all there are, that one first */
    size_t segment_bytes;               /* agreed */
    bool checksum;                      /* agreed */
    uint64_t sequence;                  /* of the next collective */
    uint32_t chain_hash;                /* of the next collective */
    const struct rf_contract *running;  /* the collective that the caller waits in; NULL = none */
    struct rf_recorder *recorder;       /* NULL: nobody asked for one */
    struct rf_cache *cache;
    struct rf_family *family; /* of those that were made of the same first one */
    struct rf_comm *sibling;  /* the next in it */
    uint32_t number;          /* in it: the same on all ranks */
    int *job_ranks; /* [size] of a group: whom each is in the first communicator; else NULL */
    int *hosts; /* [size], counted from 0 in the order of their first ranks; NULL: there is one */
    struct rf_coll_model *model; /* of measured links; NULL: none were measured */
    struct rf_p2p *p2p;
    struct rf_async *async;
    struct rf_group *group; /* NULL: calls run at once */
    struct rf_staging *staging;
    unsigned char *converted; /* convert.c's, kept */
    size_t converted_bytes;
    uint64_t staged_bytes;

    struct rf_call_record history[RF_HISTORY];
    struct rf_peer_state *peers;
    struct rf_contract
        point; /* the last send or receive, and after how many collectives; 0 = none */
    uint64_t point_after;
    const struct rf_wait_monitor *monitoring; /* while news are handled in a blocking call, of this
                                               * or of another one of the family; else NULL */
    uint32_t waits;                           /* probes that this rank has sent */
    atomic_ullong asked_at;                   /* which of the family's questions came here last */
    uint64_t answered;            /* questions of the family that its waits have answered */
    struct rf_wait_graph *asking; /* while this rank asks others (ask.c); else NULL */
    bool leaving;
    int missed;        /* a rank that has called more than this one, which leaves; -1 = none */
    int announcements; /* peers with has_waiting for an operation that this rank has not started */
    bool sent_history;

    bool has_groups;           /* some were split off it */
    bool left_out;             /* survivors have gone on without this rank */
    bool failed, unreported;   /* unreported: the worker failed, and no call has said so yet */
    struct rf_error error;     /* why */
    struct rf_failure failure; /* what that was made of */
    atomic_uint abort_requested;
    char abort_reason[RF_FAILURE_TEXT];
    char why[256];
    const char *track; /* of the trace */
};

/* ---- comm.c ---------------------------------------------------------------------------------- */

/* What every public call does first: waits for asynchronous work, and refuses on a failed
 * communicator. */
RF_MUST_CHECK int rf_comm_ready(struct rf_comm *comm);
/* The same, and looks at the control link. (A collective does so when its contract is on record.)
 */
RF_MUST_CHECK int rf_comm_enter(struct rf_comm *comm);

/* Makes a communicator of a control link and a transport, which it takes, also on failure; rc < 0:
 * of what there is by then, only to take it down. */
int rf_comm_adopt(struct rf_comm *comm, const struct rf_comm_opts *opts, int rc,
                  struct rf_comm **out);

/* Whom a rank is in the first communicator: by that go logs and traces. */
static inline int rf_comm_in_job(const struct rf_comm *comm, int rank)
{
    return comm->job_ranks ? comm->job_ranks[rank] : rank;
}

/* Of a group that is to be adopted: its ranks are these of the parent. */
RF_MUST_CHECK int rf_comm_name_ranks(struct rf_comm *comm, const struct rf_comm *parent,
                                     const int *members);

/* Which rank that is here; -1: it is not in this communicator. */
int rf_comm_from_job(const struct rf_comm *comm, int in_job);

static inline bool rf_comm_has_news(const struct rf_comm *comm)
{
    return (__atomic_load_n(&comm->control->pending, __ATOMIC_RELAXED) |
            atomic_load_explicit(&comm->abort_requested, memory_order_relaxed)) != 0;
}

/* ---- hosts.c --------------------------------------------------------------------------------- */

/* Fills comm->hosts from all ranks' numbers, which lie `stride` bytes apart. */
RF_MUST_CHECK int rf_hosts_number(struct rf_comm *comm, const uint64_t *first, size_t stride);

/* ---- links.c --------------------------------------------------------------------------------- */

/* Measures, for at most 50 ms, and chooses algorithms by the result from then on. Collective. */
RF_MUST_CHECK int rf_links_measure(struct rf_comm *comm);

#endif
