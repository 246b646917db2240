/* SPDX-License-Identifier: MIT
 *
 * The control link of a joined job: the interface between bootstrap.c, control.c (the calls of
 * comm) and control_thread.c (the sockets).
 */
#ifndef RF_TRANSPORT_CONTROL_H
#define RF_TRANSPORT_CONTROL_H

#include <pthread.h>
#include <unistd.h>

#include "../bootstrap/listener.h"
#include "../transport.h"

struct rf_recovery_listener;
struct rf_processes;

/* Thousands of ranks send a goodbye to each of thousands, so an event has no unused space. */
struct rf_control_event {
    struct rf_control_event *next;
    int kind, rank;
    uint32_t bytes;      /* of the payload, */
    uint32_t text_bytes; /* and of the text after it, not terminated */
    uint8_t data[];
};

struct rf_control_peer {
    struct rf_link link; /* rank 0: to each other rank; the others: [0] only */
    uint64_t received_ns;
    bool left, dead;
    bool unannounced; /* rank 0: has left, and the others do not know yet */
    bool ended;       /* dead: its process has ended */
    /* Rank 0: this rank's part of the current gather. */
    uint32_t part_number;
    uint8_t *part;
    size_t part_bytes;
};

/* A star: every rank is connected to rank 0, which relays. `lock` guards everything below; the
 * thread releases it only to sleep. */
struct rf_socket_control {
    struct rf_control control; /* first member */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int wake_fd;                   /* an eventfd: there is something to send, or the thread must
                                    * stop */
    struct rf_control_peer *peers; /* [size] */
    int gone;                      /* number of peers that left or died */
    int unannounced;               /* rank 0: number of unannounced ones */
    uint64_t unannounced_since_ns; /* and since when */
    struct rf_listener listener;
    struct rf_processes *processes; /* of this host; NULL: none */
    struct pollfd *polls;
    char address[64];
    bool local; /* it is a loopback address */

    struct rf_control_event *events, **events_end;
    uint32_t event_count;

    /* The all_gather in which this rank waits. */
    uint32_t gathers; /* number of the latest */
    int parts;        /* rank 0: parts received for it */
    bool waiting;
    int gather_status; /* RF_EAGAIN until it is finished */
    void *gather_all;
    size_t gather_bytes;
    char gather_text[256]; /* why it failed */

    bool aborted, said_goodbye, stopping;
    bool leaving; /* nobody fetches events any longer */

    /* For recovery: the listener, and the endpoint of each rank; NULL: rank r has endpoint r.
     * Guarded by recovery->lock. */
    struct rf_recovery_listener *recovery;
    int *endpoint_index;

    uint64_t stop_by_ns;
    uint64_t suspicion_ns, heartbeat_ns, next_heartbeat_ns;
};

/* Takes ownership of links (rank 0: [size], with [0] unused; else one, to rank 0) and listener (-1
 * = none), even if it fails. key: to authenticate latecomers. */
int rf_control_create(int rank, int size, struct rf_link *links, int listener,
                      const struct rf_job_key *key, struct rf_control **out);

/* Numeric IP of this rank's end of the control link, preferably one that other hosts can reach;
 * "127.0.0.1" for links within a process. */
void rf_control_local_address(struct rf_control *c, char *out, size_t bytes);

/* The key of the job if the link uses sockets; else NULL. */
const struct rf_job_key *rf_control_key(struct rf_control *c);

/* RF_EPEER: one of these ranks has died or left, and the message names it; RF_EABORT: the job was
 * aborted. members NULL: all ranks. 0 if the ranks are threads. Does not block. */
int rf_control_check(struct rf_control *c, const int *members, int count);

/* Collective: from now on processes on this host are watched. */
int rf_control_watch_processes(struct rf_control *c, double timeout_s);

/* Tests: sets the time after which a silent peer counts as dead. */
void rf_control_set_suspicion(struct rf_control *c, double seconds);

/* The control thread has something to do. */
static inline void rf_control_wake(struct rf_socket_control *c)
{
    uint64_t one = 1;
    ssize_t ignored = write(c->wake_fd, &one, sizeof(one)); /* full means awake already */
    (void)ignored;
}

/* control_thread.c; c->lock is held. */
void *rf_control_thread(void *control);
void rf_control_push(struct rf_socket_control *c, int kind, int rank, const void *payload,
                     size_t bytes, const char *text);
/* Queues a frame on every open link but the one to `except`. */
void rf_control_send_all(struct rf_socket_control *c, int except, int kind, int rank,
                         const void *payload, size_t bytes);

/* control_gather.c; called with c->lock held. Handle a rank's part (rank 0), and the result
 * (others). */
int rf_gather_part(struct rf_socket_control *c, int rank, uint32_t number, const void *data,
                   size_t bytes);
void rf_gather_result(struct rf_socket_control *c, uint32_t number, int status, const void *data,
                      size_t bytes);
int rf_control_all_gather(struct rf_control *control, const void *mine, size_t bytes, void *all,
                          double timeout_s);

#endif
