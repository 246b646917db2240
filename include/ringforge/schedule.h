/* SPDX-License-Identifier: MIT
 *
 * Schedules: the list of steps with which a rank carries out a collective call. `ringforge
 * schedule` prints and draws them. The functions are pure: they need no communicator and no device,
 * and send nothing. A list equals the one that a communicator runs on host memory if no links were
 * measured. A schedule does not change after it was created, so any threads may read it.
 */
#ifndef RINGFORGE_SCHEDULE_H
#define RINGFORGE_SCHEDULE_H

#include "collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_schedule;

/* ---- the call -------------------------------------------------------------------------------- */

/* A call. Zero is the default of every field except op and ranks. */
struct rf_schedule_desc {
    enum rf_coll_op op; /* any but RF_COLL_FOREST_... and RF_COLL_PREFIX_... */
    int ranks;
    size_t count; /* elements, as in the call; ignored if there are counts */
    enum rf_dtype dtype;
    enum rf_redop redop;
    enum rf_order order;

    /* The root of a broadcast, reduce, gather or scatter; the peer of a send or recv. */
    int root;

    /* [ranks] Elements of each rank, for all_gather, reduce_scatter, gather, scatter and
     * all_to_all. NULL: `count` for each. For all_to_all, counts is what this rank sends to each
     * rank, and recv_counts what each rank sends to it; both are needed. */
    const size_t *counts, *recv_counts;

    /* [ranks] The host of each rank. Hosts are numbered from 0 in the order of their first ranks.
     * NULL: all ranks are on one host. */
    const int *hosts;

    /* Ranks can read and write each other's buffers, as on one host with memory of rf_comm_alloc.
     */
    bool shared;

    /* Bytes of a segment of a long message, and of a window of a long call (docs/collectives.md).
     * 0: 256 KiB and 4 MiB, as in a communicator. SIZE_MAX: no segments, no windows. */
    size_t segment_bytes, window_bytes;
};

/* The input of the call, its output, and temporary memory of the library. */
enum rf_schedule_space { RF_SCHEDULE_IN, RF_SCHEDULE_OUT, RF_SCHEDULE_TEMP };

struct rf_schedule_range {
    uint64_t first, count;
};

/* The elements that the input or output (RF_SCHEDULE_IN, RF_SCHEDULE_OUT) of a rank consists of,
 * with shares of several ranks numbered consecutively. count 0: the rank has no such buffer.
 * Errors: RF_EINVAL (the call is invalid). */
RF_API int rf_schedule_get_side(const struct rf_schedule_desc *desc, int rank,
                                enum rf_schedule_space space, struct rf_schedule_range *out);

/* ---- steps ----------------------------------------------------------------------------------- */

enum rf_schedule_verb {
    RF_SCHEDULE_SEND,   /* from -> peer */
    RF_SCHEDULE_RECV,   /* peer -> to */
    RF_SCHEDULE_REDUCE, /* to = the reduction of the operands, in their order or pairwise */
    RF_SCHEDULE_COPY,   /* to = from */
    RF_SCHEDULE_JOIN,   /* nothing; other steps wait for it */

    /* With rf_schedule_desc.shared: */
    RF_SCHEDULE_ADDRESSES, /* to = the addresses of this rank's buffers, for the other ranks */
    RF_SCHEDULE_AGREE,     /* if a buffer is not in shared memory, all ranks run another list */
    RF_SCHEDULE_REDUCE_ALL /* `to` of every rank = the reduction of the inputs of all ranks */
};

struct rf_schedule_place {
    enum rf_schedule_space space;
    uint64_t offset; /* bytes */
};

struct rf_schedule_step {
    enum rf_schedule_verb verb;
    int peer;     /* of a send or recv; else -1 */
    uint32_t tag; /* of a send or recv; unique among the messages from one rank to another */
    uint64_t bytes;
    struct rf_schedule_place to; /* not for a send, a join or an agree */

    /* Number of operands (rf_schedule_get_operand): one for a send or copy, two or more for a
     * reduction, else none. */
    uint32_t operands;
    bool pairwise; /* a reduction combines its operands as a tree, not one after the other */

    /* Numbers of the steps that must end before this one begins. Valid as long as the schedule. */
    const uint32_t *after;
    uint32_t after_count;
};

/* Creates the list of one rank. algorithm: by name ("ring", ...); NULL: the library's choice. Free
 * it with rf_schedule_destroy. Errors: RF_EINVAL (the call is invalid, or the algorithm does not
 * support it; the message says why), RF_ENOMEM. */
RF_API int rf_schedule_create(const struct rf_schedule_desc *desc, int rank, const char *algorithm,
                              struct rf_schedule **out);

/* NULL is allowed. */
RF_EXPORT void rf_schedule_destroy(struct rf_schedule *schedule);

/* "ring", "flat", ... */
RF_EXPORT const char *rf_schedule_algorithm(const struct rf_schedule *schedule);

/* Bytes of all messages that the rank sends. */
RF_EXPORT uint64_t rf_schedule_sent_bytes(const struct rf_schedule *schedule);

/* Bytes of temporary memory. */
RF_EXPORT uint64_t rf_schedule_temp_bytes(const struct rf_schedule *schedule);

/* Number of steps. Steps are numbered from 0; a step may wait for one with a higher number. */
RF_EXPORT uint32_t rf_schedule_step_count(const struct rf_schedule *schedule);

/* Errors: RF_EINVAL (no such step). */
RF_API int rf_schedule_get_step(const struct rf_schedule *schedule, uint32_t number,
                                struct rf_schedule_step *out);

/* Errors: RF_EINVAL (no such step or operand). */
RF_API int rf_schedule_get_operand(const struct rf_schedule *schedule, uint32_t number,
                                   uint32_t operand, struct rf_schedule_place *out);

/* "send", "recv", ...; "?" for an unknown verb. */
RF_EXPORT const char *rf_schedule_verb_name(enum rf_schedule_verb verb);

/* ---- algorithms ------------------------------------------------------------------------------ */

/* An algorithm of an operation. The strings are constants. */
struct rf_schedule_algorithm_info {
    const char *name;
    const char *note;    /* the calls that it is used for */
    const char *bytes;   /* that the busiest rank sends; K: the size of the whole, N: the ranks */
    char rounds[32];     /* messages one after the other; "": no formula, the lists are counted */
    const char *why_not; /* why it does not support the call; NULL: it does */
    bool chosen;         /* the library's choice for this call */
};

/* Algorithms of desc->op, in the order in which the library tries them. Writes at most `capacity`
 * of them; infos may be NULL. *count is their number, which may exceed the capacity. "local" (one
 * rank) and "dissemination" (no elements) are listed only if they support the call. Errors:
 * RF_EINVAL (the call is invalid). */
RF_API int rf_schedule_algorithms(const struct rf_schedule_desc *desc,
                                  struct rf_schedule_algorithm_info *infos, uint32_t capacity,
                                  uint32_t *count);

#ifdef __cplusplus
}
#endif
#endif
