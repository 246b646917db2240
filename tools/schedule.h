/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of `ringforge schedule`: a call, and the steps of all its ranks.
 */
#ifndef RF_TOOLS_SCHEDULE_H
#define RF_TOOLS_SCHEDULE_H

#include "tool.h"

enum {
    SCHEDULE_MOST_RANKS = 1024,
    SCHEDULE_MOST_DRAWN = 2000, /* messages in a picture */
};

/* The call; schedule.c reads it from the options. */
struct schedule_call {
    struct rf_schedule_desc desc; /* of rank 0 */
    const char *algorithm;        /* NULL: the library's choice */
    int *hosts;                   /* [ranks], or NULL */
    int host_count;               /* 1 without hosts */
    size_t *counts, *same;        /* [ranks], or NULL; same: for the recv_counts of one rank */
};

/* ---- schedule_call.c: properties of the call alone ------------------------------------------- */

/* The description for one rank; false: it does not take part in the call. */
bool schedule_desc_of(const struct schedule_call *call, int rank, struct rf_schedule_desc *out);
/* As in the call; with counts their sum. */
uint64_t schedule_elements(const struct schedule_call *call);
/* Whether that is a piece for each rank, and not the whole. */
bool schedule_is_of_each(const struct schedule_call *call);
/* The minimum that the busiest rank must send, for any algorithm, and the formula. */
uint64_t schedule_least_bytes(const struct schedule_call *call, const char **formula);
/* rf_schedule_get_side of a rank; count 0 if it does not take part in the call. */
struct rf_schedule_range schedule_side(const struct schedule_call *call, int rank,
                                       enum rf_schedule_space space);

/* ---- schedule_job.c: the steps of all ranks
 * -------------------------------------------------------
 */

struct schedule_step {
    uint64_t bytes;
    int32_t peer;
    uint32_t tag, round; /* round: of a message when it is sent, from 1 on; otherwise the one before
                          * it */
    uint32_t need;       /* during the simulation: unfinished predecessors */
    uint32_t range, range_count; /* in struct schedule_job */
    uint8_t verb;
};

struct schedule_receive {
    int32_t peer;
    uint32_t tag, number;
};

struct schedule_rank {
    uint32_t steps, messages; /* messages: sent */
    uint64_t sent_bytes, temp_bytes, between_bytes;
    struct schedule_step *list; /* NULL: not simulated */
    uint32_t *first, *next;     /* successors of step k: next[first[k]] to next[first[k + 1] - 1] */
    struct schedule_receive *receives; /* by peer and tag */
    uint32_t received;
    struct rf_schedule *schedule; /* NULL: too many */
};

struct schedule_job {
    const struct schedule_call *call;
    const char *algorithm;
    int ranks;
    struct schedule_rank *of;
    bool whole;     /* too many steps: those of the same call without segments and windows */
    bool simulated; /* rounds are known */
    bool detailed;  /* every rank has its schedule, every step its elements */
    uint32_t rounds, most_steps, most_messages;
    uint64_t steps, messages, sent_bytes, most_sent_bytes, most_temp_bytes;
    uint64_t between_bytes, most_between_bytes; /* most: maximum of a host */
    struct rf_schedule_range *ranges;
    uint32_t range_count, range_capacity;
};

int schedule_job_make(const struct tool_command *command, const struct schedule_call *call,
                      struct schedule_job *job);
void schedule_job_free(struct schedule_job *job);
/* The schedule of a rank: the kept one, or *made, which the caller destroys. NULL: it does not take
 * part in the call, or memory is exhausted. */
const struct rf_schedule *schedule_of(const struct schedule_job *job, int rank,
                                      struct rf_schedule **made);

/* ---- schedule_ranges.c: the elements of a step ----------------------------------------------- */

/* The contents of the temporary memory of all ranks. */
struct schedule_memory;
struct schedule_memory *schedule_memory_create(int ranks);
void schedule_memory_free(struct schedule_memory *memory, int ranks);
/* Determines the elements of a step whose predecessors have ended. Those of a receive are those of
 * its message. 0, or -1: out of memory. */
int schedule_find_ranges(struct schedule_job *job, struct schedule_memory *memory, int rank,
                         uint32_t number);
/* "0-3,8"; at most `most` ranges, then "...". Returns text. */
const char *schedule_ranges_text(const struct rf_schedule_range *ranges, uint32_t count,
                                 uint32_t most, char *text, size_t size);

/* ---- output; rank: the requested one, or -1 -------------------------------------------------- */

void schedule_print(const struct schedule_job *job, int rank);
int schedule_write_json(const struct tool_command *command, const struct schedule_job *job,
                        int rank, const char *path);
int schedule_plot(const struct tool_command *command, const struct schedule_job *job,
                  const char *path);
/* Algorithms; without a call those of all operations. */
int schedule_list(const struct tool_command *command, const struct schedule_call *call);

#endif
