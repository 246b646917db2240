/* SPDX-License-Identifier: MIT
 *
 * The state of the interpreter of schedules, for its files: exec.c (order, messages, completions),
 * exec_work.c (memory operations of steps) and exec_capacity.c (the interpreter's own memory).
 */
#ifndef RF_COLL_EXEC_STATE_H
#define RF_COLL_EXEC_STATE_H

#include "../base/base.h"
#include "reduce.h"
#include "sched.h"

/* A posted send or receive; its address is the context of the completion. */
struct message {
    struct rf_transport_context context; /* its owner is the rf_exec */
    uint32_t step;                       /* RF_NO_STEP = not posted */
    void *landing;                       /* for a zero-copy receive: the buffer for data that do not
                                          * stay in place */
};

/* Steps in the order they became ready. A step enters once per run, so the arrays never wrap. */
struct queue {
    uint32_t *steps;
    uint32_t head, tail;
};

/* Moves in one direction: those started, oldest first, and those that wait. */
struct moves {
    struct {
        uint32_t step;
        uint64_t ticket;
    } started[RF_STAGING_SLOTS];
    uint32_t first, count;
    struct queue ready;
};

/* The data of a zero-copy receive, which stay where they arrived. The index of an entry is the
 * offset in temporary memory that the receive names, divided by RF_TEMP_ALIGNMENT. */
#define RF_LANDED UINT32_MAX /* not a token of any transport */
struct zero_copy {
    const void *data;
    uint32_t token; /* to release them with; 0 = none: the data are in temporary memory; RF_LANDED:
                     * they are already at the destination of their only copy */
    int peer;
};

struct buffers {
    unsigned char *in, *out;
};

struct rf_exec {
    struct rf_transport *transport; /* may be NULL: one rank, no network */
    const struct rf_sched *sched;   /* NULL = idle */
    struct rf_exec_args args;
    unsigned char *base[RF_SPACE_COUNT];

    uint32_t *need; /* [step] number of unfinished predecessors */
    struct queue recvs, sends;
    uint32_t *work; /* a stack: depth first */
    uint32_t work_count;
    struct queue copies;   /* copies that nothing waits for: run if there is no other work */
    uint64_t copied;       /* bytes done of the first one */
    struct moves moves[2]; /* fetches, stores */
    uint32_t left;         /* number of unfinished steps */
    int status;            /* of a failed run, until reset */
    int mismatch_peer;
    uint64_t activity;
    uint32_t sealed_step, sealed; /* the contract of the last send */

    uint32_t step_capacity; /* of need, ..., work, moves: one allocation at `need` */
    struct message *messages;
    uint32_t *free_messages; /* a stack: the same few stay in the cache */
    uint32_t message_capacity, free_count;
    struct rf_fold_part *parts;
    uint32_t part_capacity;
    void *temp, *temp_handle;
    size_t temp_capacity;

    bool shares;                    /* ranks can reach each other's memory */
    bool reachable[RF_SPACE_COUNT]; /* others can reach the run's IN, OUT */
    bool readable[RF_SPACE_COUNT];  /* others can read long messages from it */
    struct zero_copy *zero_copies;
    uint32_t zero_copy_count;
    struct buffers *all;    /* [rank], addresses once all are all_reachable */
    unsigned char **places; /* [rank]: allocated with `all` */
    int all_capacity;
    int64_t other_bytes;
};

/* Whether others read a published operand itself, and not a copy of it. If they can read memory of
 * any kind, a sufficiently long message needs no copy. */
static inline bool rf_exec_is_read(const struct rf_exec *exec, enum rf_space space, uint64_t bytes)
{
    return exec->reachable[space] ||
           (exec->readable[space] && bytes >= exec->transport->read_bytes);
}

static inline void *rf_exec_address(const struct rf_exec *exec, struct rf_operand operand)
{
    return (void *)((uintptr_t)exec->base[operand.space] + operand.offset); /* NULL: offset 0 */
}

/* The part of it that others read. */
static inline void *rf_exec_published(const struct rf_exec *exec, struct rf_operand operand,
                                      struct rf_operand copy, uint64_t bytes)
{
    struct rf_operand read = rf_exec_is_read(exec, operand.space, bytes) ? operand : copy;
    return rf_exec_address(exec, read);
}

/* exec_capacity.c. Provides memory for this schedule and its fallback; discards previous contents.
 */
int rf_exec_reserve(struct rf_exec *exec, const struct rf_sched *sched);
/* Call only while no message is posted. */
void rf_exec_free_messages(struct rf_exec *exec);

/* exec_work.c. Determines which of the run's buffers others can reach. */
void rf_exec_find_reachable(struct rf_exec *exec);
/* Runs a step without a message or a move: a reduction, or a published copy. */
void rf_exec_work(struct rf_exec *exec, const struct rf_step *step);

/* Copies `bytes` of any other copy step, from `offset` on. The last piece releases the source. */
void rf_exec_copy(struct rf_exec *exec, const struct rf_step *step, uint64_t offset,
                  uint64_t bytes);
/* A step after all addresses have arrived. 1: all can be reached; 0: not all; negative: an address
 * is invalid. */
int rf_exec_agree(struct rf_exec *exec, const struct rf_step *step);

#endif
