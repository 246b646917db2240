/* SPDX-License-Identifier: MIT
 *
 * A listening socket and its pending connections, which have not yet proved the job key. Each has
 * two seconds for that. At most 64 are pending; the oldest is closed for a new one. Used by rank 0
 * while the ranks join (gather.c), afterwards by the control thread, which refuses late ranks with
 * a reason, by the join listener of a running job and by recovery. The owner decides the purpose of
 * an authenticated connection.
 */
#ifndef RF_TRANSPORT_LISTENER_H
#define RF_TRANSPORT_LISTENER_H

#include <poll.h>

#include "../control/link.h"
#include "handshake.h"

enum { RF_LISTENER_MAX_PENDING = 64, RF_LISTENER_POLLS = 1 + RF_LISTENER_MAX_PENDING };

struct rf_pending_connection {
    struct rf_link link;
    struct rf_handshake handshake;
    struct rf_job_key key; /* with key_of: that of its name */
    int number;
    uint64_t since_ns;
    bool refused; /* the refusal is sent; waits for the other end to close */
};

struct rf_listener {
    int fd; /* the listening socket; -1 = none */
    int size;
    struct rf_job_key key;
    struct rf_pending_connection pending[RF_LISTENER_MAX_PENDING];
    int pending_count;
    bool warned;
    bool out_of_files; /* a connection could not be accepted because too many files are open */
    /* Called when a connection has proved the key. 0: the owner has taken *link (and has sent
     * nothing yet). Otherwise a status and a text in rf_last_error(), which are sent to the other
     * end. */
    int (*admit)(void *owner, int rank, struct rf_link *link);
    /* The same for one that declines; its reason, a refusal, follows. NULL: ignored. */
    int (*decline)(void *owner, int rank, struct rf_link *link);
    /* NULL: all connections prove `key`. Otherwise each gives a name, and proves the key that this
     * function writes for it; it returns the number that admit gets as rank. -1: nobody has this
     * name; then no proof is accepted. */
    int (*key_of)(void *owner, const char *name, struct rf_job_key *key);
    void (*refused)(void *owner, const char *name); /* with key_of: a wrong proof; may be NULL */
    const struct rf_pending_connection *admitting;  /* during admit */
    void *owner;
};

void rf_listener_init(struct rf_listener *listener, int fd, int size, const struct rf_job_key *key);
void rf_listener_close(struct rf_listener *listener);
/* Fills in the entries for poll(), at most RF_LISTENER_POLLS; returns their number. */
int rf_listener_polls(const struct rf_listener *listener, struct pollfd *polls);
/* The time until which the caller may sleep; UINT64_MAX: no connection is pending. */
uint64_t rf_listener_deadline(const struct rf_listener *listener);
/* Serves all pending connections. Never blocks, never fails: errors of a connection are not errors
 * of the job. */
void rf_listener_serve(struct rf_listener *listener);

#endif
