/* SPDX-License-Identifier: MIT
 *
 * The world that loopback ranks share: the interface between loopback.c (data) and
 * loopback_control.c (events). Only these include it.
 */
#ifndef RF_TRANSPORT_LOOPBACK_H
#define RF_TRANSPORT_LOOPBACK_H

#include <pthread.h>
#include <stdatomic.h>

#include "../matching.h"

struct rf_loop_event {
    struct rf_loop_event *next;
    struct rf_event event;
};

struct rf_loop_rank {
    struct rf_transport transport;
    struct rf_control control;
    struct rf_loopback *world;

    /* Messages sent to this rank and not yet matched. Lock order: match_lock, then a done_lock. Two
     * match_locks are never held at once. */
    pthread_mutex_t match_lock;
    struct rf_posted_list recvs[RF_MATCH_BUCKETS], sends[RF_MATCH_BUCKETS];

    /* Completions for this rank's poll, by time. */
    pthread_mutex_t done_lock;
    struct rf_posted_list done;
    atomic_uint done_count;
    atomic_uint sends_outstanding;

    atomic_bool killed;
    uint64_t messages;      /* sent to others; by this rank's thread only */
    uint64_t *link_free_ns; /* [size], used by this rank's thread: when the link to that rank is
                             * idle */

    /* Control: all under world->lock. */
    struct rf_loop_event *events, **events_end;
    uint64_t gathers; /* begun by this rank */
    struct {
        uint64_t number; /* 1 + index of the all_gather it belongs to; 0 = none yet */
        void *data;
        size_t bytes;
    } slot[2];
    /* Recovery: this rank waits in one; it will never take part in one again; the last one had no
     * majority. */
    bool recovering, left_out, refused;
    int new_rank; /* in the world of the last recovery; -1 = not a member */
    bool opened_transport, opened_control, left, closed, dead, aborted;
};

struct rf_loopback {
    int size;
    struct rf_loopback_opts opts;
    atomic_uint_fast64_t messages; /* sent to others, in the whole world */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recoveries;           /* number of finished recoveries */
    struct rf_loopback *survivors; /* the result of the last recovery; owned by its members */
    struct rf_error refusal;       /* of a recovery without a majority */
    atomic_uint ends;              /* > 0: the world is freed after this many ends */
    struct rf_loop_rank *ranks;
};

/* loopback_event.c: tells every other rank that `rank` died. */
void rf_loop_report_death(struct rf_loopback *world, int rank, const char *text);
/* The world is locked. Queues an event about `from` for one rank, or for every rank except `from`.
 */
void rf_loop_push(struct rf_loop_rank *to, int kind, int from, const void *payload, size_t bytes,
                  const char *text);
void rf_loop_push_to_others(struct rf_loopback *world, int kind, int from, const void *payload,
                            size_t bytes, const char *text);
void rf_loop_drop_events(struct rf_loop_rank *self);

/* loopback_survivors.c: rf_survivors_join for a control link of loopback. */
int rf_loop_survivors(struct rf_control *control, double timeout_s, int *members, int *count,
                      struct rf_control **out);

/* A world of `count` of its ranks, with links like its own and no faults; it is freed with the last
 * of its ends. */
int rf_loop_create_group(const struct rf_loopback *world, int count, struct rf_loopback **out);
/* One end (a transport or a control link) of the world is closed. */
void rf_loop_end(struct rf_loopback *world);
/* The world of a control link; NULL: not a loopback link. */
struct rf_loopback *rf_loop_world(struct rf_control *control);

#endif
