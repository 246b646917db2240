/* SPDX-License-Identifier: MIT
 *
 * Schedules of collectives: the list of steps by which a rank carries out a call. For those who
 * want to see, count or check what an algorithm does; `ringforge schedule` prints and draws them.
 * Pure functions: no communicator and no device is needed, and nothing is sent. The lists are those
 * that a communicator runs on memory of the host, where no links were measured.
 *
 * Thread safety: a schedule does not change after it has been made; any threads may read it.
 */
#ifndef RINGFORGE_SCHEDULE_H
#define RINGFORGE_SCHEDULE_H

#include "collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_schedule;

/* A call, as all its ranks agree about it. What is zero has the default. */
struct rf_schedule_desc {
    enum rf_coll_op op; /* any but the sums over micro-batches (RF_COLL_FOREST_..., _PREFIX_...) */
    int ranks;
    size_t count; /* elements, as in the call; not read where there are counts */
    enum rf_dtype dtype;
    enum rf_redop redop;
    enum rf_order order;

    /* The root of a broadcast, reduce, gather or scatter; of a send or recv the peer. */
    int root;

    /* [ranks] The forms with a count for each rank; NULL: equal counts. Of an all_to_all what this
     * rank sends to each, and in recv_counts what each sends to it. */
    const size_t *counts, *recv_counts;

    /* [ranks] The host of each rank, by numbers from 0 in the order of the hosts' first ranks;
     * NULL: all are on one host. */
    const int *hosts;

    /* Whether ranks reach each other's memory, as those of one host do on buffers of rf_comm_alloc.
     */
    bool shared;

    /* Bytes of a long message's segments, and of a long call's windows (docs/collectives.md). 0:
     * 256 KiB and 4 MiB, as all transports have them; SIZE_MAX: one piece. */
    size_t segment_bytes, window_bytes;
};

enum rf_schedule_verb {
    RF_SCHEDULE_SEND,   /* from -> peer */
    RF_SCHEDULE_RECV,   /* peer -> to */
    RF_SCHEDULE_REDUCE, /* to = the fold of the operands, in their order, or pairwise */
    RF_SCHEDULE_COPY,   /* to = from */
    RF_SCHEDULE_DIVIDE, /* to = to / ranks, the end of an average */
    RF_SCHEDULE_JOIN,   /* nothing: later steps wait for all that it waits for */
    /* Where ranks reach each other's memory: */
    RF_SCHEDULE_SHOW,      /* to = where this rank's buffers are, for the others */
    RF_SCHEDULE_AGREE,     /* whether all buffers can be reached; if not, another list is run */
    RF_SCHEDULE_REDUCE_ALL /* `to` of every rank = the fold of all ranks' inputs there */
};

/* The caller's input, the caller's output, and temporary memory of the library. */
enum rf_schedule_space { RF_SCHEDULE_IN, RF_SCHEDULE_OUT, RF_SCHEDULE_TEMP };

struct rf_schedule_place {
    enum rf_schedule_space space;
    uint64_t offset; /* bytes */
};

struct rf_schedule_step {
    enum rf_schedule_verb verb;
    int peer;     /* of a send or receive; else -1 */
    uint32_t tag; /* unique among the messages from one rank to another */
    uint64_t bytes;
    struct rf_schedule_place to;

    /* Operands, of which rf_schedule_get_operand tells the places: of a reduction two or more, of a
     * send and a copy one, else none. */
    uint32_t operands;
    bool pairwise; /* a reduction: the operands are folded as a tree, not one after the other */

    /* Numbers of the steps that end before this one begins. They belong to the schedule. */
    const uint32_t *after;
    uint32_t after_count;
};

/* The list of one rank. algorithm: by name, NULL: the one that the library takes. Free it with
 * rf_schedule_destroy. Errors: RF_EINVAL (a bad description, or the algorithm cannot serve it: the
 * message says why), RF_ENOMEM. */
RF_API int rf_schedule_create(const struct rf_schedule_desc *desc, int rank, const char *algorithm,
                              struct rf_schedule **out);
RF_EXPORT void rf_schedule_destroy(struct rf_schedule *schedule); /* NULL is allowed */

RF_EXPORT const char *rf_schedule_algorithm(const struct rf_schedule *schedule);
/* Of all messages that it sends. */
RF_EXPORT uint64_t rf_schedule_sent_bytes(const struct rf_schedule *schedule);
/* Temporary memory that it works in. */
RF_EXPORT uint64_t rf_schedule_temp_bytes(const struct rf_schedule *schedule);
RF_EXPORT uint32_t rf_schedule_step_count(const struct rf_schedule *schedule);
/* Steps are numbered from 0; a step may wait for one with a higher number. Errors: RF_EINVAL. */
RF_API int rf_schedule_get_step(const struct rf_schedule *schedule, uint32_t number,
                                struct rf_schedule_step *out);
RF_API int rf_schedule_get_operand(const struct rf_schedule *schedule, uint32_t number,
                                   uint32_t operand, struct rf_schedule_place *out);
/* "send", "recv", ...; "?" for an unknown verb. */
RF_EXPORT const char *rf_schedule_verb_name(enum rf_schedule_verb verb);

/* An algorithm of an operation. The texts are constant. */
struct rf_schedule_algorithm_info {
    const char *name;
    const char *note;    /* what it is good for */
    const char *why_not; /* why it cannot serve the call; NULL: it can */
    bool chosen;         /* the library takes it for this call */
};
/* The algorithms of desc->op, in the order in which they are tried. infos may be NULL, so that they
 * are only counted; *count may be more than the capacity. Those for any operation ("local" on one
 * rank, "dissemination" without elements) are there only where they serve. Errors: RF_EINVAL. */
RF_API int rf_schedule_algorithms(const struct rf_schedule_desc *desc,
                                  struct rf_schedule_algorithm_info *infos, uint32_t capacity,
                                  uint32_t *count);

#ifdef __cplusplus
}
#endif
#endif
