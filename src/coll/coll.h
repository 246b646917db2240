/* SPDX-License-Identifier: MIT
 *
 * Collective schedules: building and running them. comm calls this; it is independent of networks,
 * devices and communicators. A schedule is a pure function of (operation, rank, ranks, count,
 * order, segment), so it can be printed, counted and simulated for any number of ranks without
 * anything else.
 */
#ifndef RF_COLL_COLL_H
#define RF_COLL_COLL_H

#include <ringforge/comm.h>
#include <ringforge/types.h>

#include "../base/transport_interface.h"
#include "operation.h"

struct rf_sched;
struct rf_coll_model;

/* Calls with more data than this run in windows of about this size (windows.c): enough bytes to
 * keep a network busy, and few enough that the memory of windows is negligible. The same on all
 * ranks. */
#define RF_WINDOW_BYTES ((size_t)4 << 20)
/* The number of windows in staging memory at the same time: one being fetched, two in flight, one
 * being stored. */
enum { RF_STAGING_SLOTS = 4 };
enum { RF_STAGED_IN = 1, RF_STAGED_OUT = 2 };

/* The description of a schedule. Everything that two ranks could disagree about is in the contract
 * (comm), not here. */
struct rf_coll_desc {
    enum rf_coll_op op;
    int rank, ranks;
    size_t count; /* elements, as in the public call */
    enum rf_dtype dtype;
    enum rf_redop redop;
    enum rf_order order;
    const size_t *counts;      /* [ranks], the v forms: elements of each rank; count is their sum */
    const size_t *recv_counts; /* [ranks], all-to-all with counts: the elements that each rank sends
                                * here */
    int root; /* broadcast, reduce, gather, scatter; send and recv: the peer (send to itself: IN is
                 copied to OUT) */
    const int *hosts; /* [ranks] the host of each, counted from 0 in the order of their first ranks;
                         NULL: all are on one */
    size_t segment_bytes;              /* 0 = one piece per message */
    const struct rf_coll_model *model; /* costs for choosing (model.h); NULL: by the table */
    const struct rf_forest *forest;    /* for the calls of a forest */
    int most_parts;                    /* rf_forest_most_parts if checked; 0: not checked */
    size_t stride;                     /* forest: elements between parts */
    int leaves, round;                 /* for a prefix */
    size_t window_bytes;               /* 0: no windows */
    bool is_window;  /* set by windows.c, for builders: the call has several windows, so its pieces
                      * are not adjacent */
    unsigned staged; /* RF_STAGED_*: this rank's args.in or args.out is staging memory; the messages
                      * are the same */
    bool shared;     /* ranks can reach each other's memory; equal on all ranks */
};

/* Chooses the algorithm (a table row that supports the call), builds and compiles it. It reads
 * args.in and writes args.out; a broadcast works in args.out alone, also on the root; a send needs
 * only in, a receive only out. One schedule serves runs in place and out of place. */
RF_MUST_CHECK int rf_sched_build(const struct rf_coll_desc *desc, struct rf_sched **out);
/* As rf_sched_build, with this row of the table, even if the table prefers another; RF_EINVAL if
 * the row does not support the description. */
RF_MUST_CHECK int rf_sched_build_as(const struct rf_coll_desc *desc, const char *algorithm,
                                    struct rf_sched **out);
/* The algorithm that rf_sched_build uses, and the predicted time; negative: no prediction. */
RF_MUST_CHECK int rf_coll_choose(const struct rf_coll_desc *desc, const char **name,
                                 double *seconds);
void rf_sched_destroy(struct rf_sched *sched);
/* The staging memory of the schedule; 0: none. */
RF_MUST_CHECK int rf_sched_staging_bytes(const struct rf_coll_desc *desc, const char *algorithm,
                                         uint64_t *out);
/* The number of subtrees of the rank with the most. O(ranks log leaves). */
int rf_forest_most_parts(const struct rf_forest *forest);
/* As rf_forest_sent_bytes, for a checked forest and its rf_forest_most_parts: for many ranks and
 * counts. O(log leaves). */
RF_MUST_CHECK int rf_forest_count_sent(const struct rf_forest *forest, int most_parts, int rank,
                                       size_t elements, uint64_t *out);
size_t rf_sched_temp_bytes(const struct rf_sched *sched);
uint64_t rf_sched_sent_bytes(const struct rf_sched *sched);
const char *rf_sched_algorithm(const struct rf_sched *sched); /* "ring", "flat", "tree", ... */

/* Whether all its receives can be posted at once, before any message arrives. */
bool rf_sched_can_prepost(const struct rf_sched *sched);
/* Whether its ranks read and write each other's memory. */
bool rf_sched_shares_memory(const struct rf_sched *sched);
/* Sets to[rank] for every rank that it sends to. */
void rf_sched_receivers(const struct rf_sched *sched, bool *to);

/* A number for an algorithm that a caller may name, constant within one build: 1 to 255; 0 =
 * unknown. */
uint8_t rf_coll_number(enum rf_coll_op op, const char *algorithm);
const char *rf_coll_numbered(uint8_t number); /* its name; "?" = there is none */

/* Runs a compiled schedule; one at a time per exec. All memory it needs is owned by it and reused.
 */
struct rf_exec;
RF_MUST_CHECK int rf_exec_create(struct rf_transport *transport, struct rf_exec **out);
void rf_exec_destroy(struct rf_exec *exec);

/* A copy of bytes between a tensor and staging memory. */
struct rf_move {
    uint64_t tensor, slot, bytes;
};

/* Makes the moves of a staged schedule; filled by comm's comm_staging.c. */
struct rf_mover {
    /* Starts moves from tensor IN or OUT into staging memory (store: false) or back; does not
     * block. Moves in one direction end in order; *ticket is for `ended`. */
    int (*start)(struct rf_mover *mover, bool store, bool out, const struct rf_move *moves,
                 uint32_t count, uint64_t *ticket);
    /* 1: have ended; 0: not yet; negative: the device has failed. */
    int (*ended)(struct rf_mover *mover, bool store, uint64_t ticket);
};

struct rf_exec_args {
    const void *in; /* in a staged schedule: the staging memory */
    void *out;      /* may equal in if the operation allows in place */
    uint32_t comm_id;
    uint32_t sequence;
    uint32_t contract;      /* sent with every message; every received one must agree with it
                             * (rf_contract_agrees, not ==: an empty label matches any) */
    struct rf_mover *mover; /* for a staged schedule */
    const struct rf_reduction *reduction; /* for RF_CUSTOM; else NULL */
    const bool *blocked; /* [ranks] peers to which nothing is sent for now; changes are seen in the
                          * next turn. NULL: none is blocked */
    bool flush;          /* sums and products: subnormal operands and results are 0 */
    bool checksum;       /* the low 24 bits sent with a message also cover its data */
};
/* Starts, and posts everything that can be posted at once. */
RF_MUST_CHECK int rf_exec_start(struct rf_exec *exec, const struct rf_sched *sched,
                                const struct rf_exec_args *args);
/* One turn: one completion, depth first. 1 = finished, 0 = not yet, negative = failed. */
RF_MUST_CHECK int rf_exec_progress(struct rf_exec *exec);
/* From now on args.blocked counts as NULL. */
void rf_exec_unblock(struct rf_exec *exec);
/* Whether every outstanding message has a posted receive. */
bool rf_exec_receives_posted(const struct rf_exec *exec);
/* Grows with every completion and every posted message: comm's measure of progress. */
uint64_t rf_exec_activity(const struct rf_exec *exec);
/* After a mismatch: the peer whose message had another contract or size; -1 = none. */
int rf_exec_mismatch_peer(const struct rf_exec *exec);
/* Payload that it has moved between ranks beyond the posted messages since it was created, minus
 * posted bytes that are not payload. Counted as the schedule for other networks would have sent it.
 */
int64_t rf_exec_other_bytes(const struct rf_exec *exec);
/* A peer whose message is still awaited, for the message of a deadline; -1 = none. */
int rf_exec_waiting_for(const struct rf_exec *exec);
/* Whether a message to or from this peer has begun and not ended: the run cannot end without it. */
bool rf_exec_needs(const struct rf_exec *exec, int peer);
/* Resets a failed run after the transport's cancel_all. */
void rf_exec_reset(struct rf_exec *exec);

/* dst = a op b, elementwise; dst may be a or b. f32 and integers vectorise; 16-bit types are added
 * in f32. */
void rf_combine(void *dst, const void *a, const void *b, size_t count, enum rf_dtype dtype,
                enum rf_redop redop);

#endif
