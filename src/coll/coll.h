/* SPDX-License-Identifier: MIT
 *
 * Collective schedules: what is built, and how it is run. comm calls this; it knows no network, no
 * device and no communicator. A schedule is a pure function of (operation, rank, ranks, count,
 * order, segment), so it can be printed, counted and simulated for any number of ranks with nothing
 * else present.
 */
#ifndef RF_COLL_COLL_H
#define RF_COLL_COLL_H

#include <ringforge/comm.h>
#include <ringforge/types.h>

#include "../base/transport_interface.h"
#include "operation.h"

struct rf_sched;
struct rf_coll_model;

/* Calls with more than this much data are carried out in windows of about as much (windows.c): so
 * many bytes that a window keeps a network busy, few enough that its memory does not matter. The
 * same on all ranks. */
#define RF_WINDOW_BYTES ((size_t)4 << 20)
/* Windows that have a place in staging memory at the same time: one that is fetched, two in
 * flight, one that is stored. */
enum { RF_STAGING_SLOTS = 4 };
enum { RF_STAGED_IN = 1, RF_STAGED_OUT = 2 };

/* What to build. Everything that two ranks could disagree about is in the contract (comm), not
 * here. */
struct rf_coll_desc {
    enum rf_coll_op op;
    int rank, ranks;
    size_t count; /* elements, as in the public call */
    enum rf_dtype dtype;
    enum rf_redop redop;
    enum rf_order order;
    const size_t *counts;      /* [ranks], the v forms: elements of each rank; count is their sum */
    const size_t *recv_counts; /* [ranks], all-to-all with counts: what each rank sends here */
    int root; /* broadcast, reduce, gather, scatter; send and recv: the peer (send to itself: IN is
                 copied to OUT) */
    const int *hosts; /* [ranks] the host of each, counted from 0 in the order of their first ranks;
                         NULL: all are on one */
    size_t segment_bytes;              /* 0 = one piece per message */
    const struct rf_coll_model *model; /* by which to choose (model.h); NULL: by the table */
    const struct rf_forest *forest;    /* of a forest's calls */
    int most_parts;                    /* rf_forest_most_parts of a forest that has been checked; 0:
                                          neither has been done */
    size_t stride;                     /* forest: elements between parts */
    int leaves, round;                 /* of a prefix */
    size_t window_bytes;               /* 0: all in one piece */
    bool is_window;  /* set by windows.c, for builders: of a call of several windows, whose pieces
                        are not next to each other */
    unsigned staged; /* RF_STAGED_*: this rank's args.in or args.out is staging memory; messages are
                        the same */
    bool shared;     /* ranks reach each other's memory: a fact about all of them */
};

/* Chooses the algorithm (a table row that fits), builds and compiles it. It reads args.in and
 * writes args.out; a broadcast works in args.out alone, on the root too; a send needs only in, a
 * receive only out. One schedule serves runs in place and out of place. */
RF_MUST_CHECK int rf_sched_build(const struct rf_coll_desc *desc, struct rf_sched **out);
/* As rf_sched_build, but by this row of the table, even where the table would prefer another;
 * RF_EINVAL where the row cannot serve the description. */
RF_MUST_CHECK int rf_sched_build_as(const struct rf_coll_desc *desc, const char *algorithm,
                                    struct rf_sched **out);
/* The algorithm that rf_sched_build takes, and the predicted time; negative: there is no
 * prediction.
 */
RF_MUST_CHECK int rf_coll_choose(const struct rf_coll_desc *desc, const char **name,
                                 double *seconds);
void rf_sched_destroy(struct rf_sched *sched);
/* Staging memory that the schedule works in; 0: none. */
RF_MUST_CHECK int rf_sched_staging_bytes(const struct rf_coll_desc *desc, const char *algorithm,
                                         uint64_t *out);
/* Subtrees of the rank that has most. O(ranks log leaves). */
int rf_forest_most_parts(const struct rf_forest *forest);
/* As rf_forest_sent_bytes, of a forest that is known to be right, and its rf_forest_most_parts: for
 * those who ask for many ranks and counts. O(log leaves). */
RF_MUST_CHECK int rf_forest_count_sent(const struct rf_forest *forest, int most_parts, int rank,
                                       size_t elements, uint64_t *out);
size_t rf_sched_temp_bytes(const struct rf_sched *sched);
uint64_t rf_sched_sent_bytes(const struct rf_sched *sched);
const char *rf_sched_algorithm(const struct rf_sched *sched); /* "ring", "flat", "tree", ... */

/* Whether all its receives can be posted at once, before any message has come. */
bool rf_sched_can_prepost(const struct rf_sched *sched);
/* Whether ranks read and write each other's memory in it. */
bool rf_sched_shares_memory(const struct rf_sched *sched);
/* Sets to[rank] for everybody to whom it sends. */
void rf_sched_receivers(const struct rf_sched *sched, bool *to);

/* A number for an algorithm that a caller may name, the same in one build: 1 to 255; 0 = unknown.
 */
uint8_t rf_coll_number(enum rf_coll_op op, const char *algorithm);
const char *rf_coll_numbered(uint8_t number); /* its name; "?" = there is none */

/* Runs a compiled schedule; one at a time per exec. All memory it needs is owned by it and reused.
 */
struct rf_exec;
RF_MUST_CHECK int rf_exec_create(struct rf_transport *transport, struct rf_exec **out);
void rf_exec_destroy(struct rf_exec *exec);

/* Bytes between a tensor and staging memory. */
struct rf_move {
    uint64_t tensor, slot, bytes;
};

/* Who makes the moves of a staged schedule; comm's, filled by comm_staging.c. */
struct rf_mover {
    /* Starts moves from tensor IN or OUT into staging memory (store: false) or back; does not
     * block. Those of one direction end in their order; *ticket is for `ended`. */
    int (*start)(struct rf_mover *mover, bool store, bool out, const struct rf_move *moves,
                 uint32_t count, uint64_t *ticket);
    /* 1: have ended; 0: not yet; negative: the device has failed. */
    int (*ended)(struct rf_mover *mover, bool store, uint64_t ticket);
};

struct rf_exec_args {
    const void *in; /* of a staged schedule: the staging memory */
    void *out;      /* may equal in where the operation allows in place */
    uint32_t comm_id;
    uint32_t sequence;
    uint32_t contract;      /* sent with every message; every received one must agree with it
                             * (rf_contract_agrees in base/transport_interface.h, not ==: an empty label
                             * matches any) */
    struct rf_mover *mover; /* of a staged schedule */
    const struct rf_reduction *reduction; /* of RF_CUSTOM; else NULL */
    const bool *blocked; /* [ranks] to whom nothing is sent for now: where this changes, the next
                          * turn sees it. NULL: all are open */
    bool flush;          /* sums and products: subnormal operands and results are 0 */
    bool checksum;       /* the low 24 bits of what is sent with a message cover its data as well */
};
/* Starts; posts what can be posted at once. */
RF_MUST_CHECK int rf_exec_start(struct rf_exec *exec, const struct rf_sched *sched,
                                const struct rf_exec_args *args);
/* One turn: one completion, depth first. 1 = finished, 0 = not yet, negative = failed. */
RF_MUST_CHECK int rf_exec_progress(struct rf_exec *exec);
/* From now on args.blocked is as if it had been NULL. */
void rf_exec_unblock(struct rf_exec *exec);
/* Whether every message that is still to come has its receive. */
bool rf_exec_receives_posted(const struct rf_exec *exec);
/* Moves with every completion and every posted message: comm's measure of byte progress. */
uint64_t rf_exec_activity(const struct rf_exec *exec);
/* After a mismatch: which peer's message carried a foreign contract or size; -1 = none. */
int rf_exec_mismatch_peer(const struct rf_exec *exec);
/* Payload that it has moved between ranks beyond what was posted, since it was made; less what was
 * posted and is no payload. Counted as the schedule for other networks would have sent it. */
int64_t rf_exec_other_bytes(const struct rf_exec *exec);
/* A peer whose message is still awaited, -1 = none: to be named in a deadline's message. */
int rf_exec_waiting_for(const struct rf_exec *exec);
/* Whether a message to or from this peer has begun and not ended: without it the run cannot end. */
bool rf_exec_needs(const struct rf_exec *exec, int peer);
/* Forgets a failed run after the transport's cancel_all. */
void rf_exec_reset(struct rf_exec *exec);

/* dst = a op b, elementwise; dst may be a or b. f32 and integers vectorise; 16-bit types are added
 * in f32. */
void rf_combine(void *dst, const void *a, const void *b, size_t count, enum rf_dtype dtype,
                enum rf_redop redop);

#endif
