/* SPDX-License-Identifier: MIT
 *
 * The coordinator: what its files share. One thread runs it, which sleeps in poll() only.
 */
#ifndef RF_FEDERATED_COORDINATOR_H
#define RF_FEDERATED_COORDINATOR_H

#include "io/lock.h"
#include "message.h"
#include "transport/bootstrap/listener.h"

enum { FEDERATED_LEAVING = 16 };

/* A client of the list, whether it is here or not. */
struct client {
    char name[RF_NAME_BYTES + 1];
    struct rf_job_key key;
    bool here, joined; /* it has a connection, and has joined on it */
    bool noted;        /* a refusal of its key: once */
    struct rf_channel channel;
    uint64_t since_ns; /* of the connection */

    /* The round whose parameters were sent last, and whose update it owes. */
    bool busy;
    int64_t round;
    int64_t out_done; /* values of the parameters that are queued; -1: none are due */

    /* A message that is followed by values. */
    enum rf_federated_message arriving; /* 0: none */
    int64_t in_done;
    double in_weight;

    /* Of the open round, or the one that ended last. */
    bool asked, answered;
    double weight;
    float *update; /* NULL before its first */

    /* Of secure aggregation. */
    uint8_t ready[FEDERATED_READY_BYTES]; /* its keys, if it has answered */
    int member;                           /* of the open aggregation, on this connection; or -1 */
    bool late, failed;                    /* it was ready too late; too few were left with it */
    bool reveals;                         /* it owes shares */
    uint64_t *masked;                     /* as `update`, and the weight behind it */
};

/* A connection whose last message is on its way. */
struct leaving {
    struct rf_channel channel;
    uint64_t until_ns;
};

struct rf_coordinator {
    struct rf_coordinator_opts opts; /* without pointers to the caller's memory, but user */
    struct rf_rounds_rule rule;
    struct rf_optimizer_opts outer;
    char rule_text[FEDERATED_RULE_BYTES];
    char *terms; /* of the first client; NULL: none has joined */
    char *folder;
    struct rf_folder_lock lock;

    struct rf_listener listener;
    int port, wake_fd;
    bool stopped;
    struct client *clients;
    struct pollfd *polls; /* room for every connection */
    struct leaving leaving[FEDERATED_LEAVING];
    int leaving_count;
    int asked; /* the client whose parameters are to be the first; -1: none */
    uint64_t asked_ns;
    int strangers;
    uint64_t sent_bytes, received_bytes; /* on connections that have ended */

    int64_t count; /* of parameters; 0: not known yet */
    bool has_params;
    float *params, *mean; /* published; the mean difference or parameters */
    double *sum;          /* of a piece of the parameters */
    float *state[RF_STATE_COUNT];
    int32_t *decay;
    struct rf_step_scalars scalars;

    struct secure_round *secure; /* NULL: updates are not masked */

    uint64_t run; /* of this process: an update of another one has another start */
    int64_t round, saved;
    bool open, ended; /* a round is; all of them have */
    uint64_t began_ns, progress_ns, heartbeat_ns;
    enum rf_federated_part *parts;
    double *weights;
};

/* ---- memory.c -------------------------------------------------------------------------------- */

/* Memory for `count` parameters. */
int federated_make_room(struct rf_coordinator *c, int64_t count);
void federated_note(struct rf_coordinator *c, const char *format, ...) RF_PRINTF(2, 3);

/* ---- connection.c ---------------------------------------------------------------------------- */

int federated_send(struct client *client, const struct federated_message *message);
/* Sends the parameters of the open round, or the last ones, as the connection accepts them. */
void federated_send_round(struct rf_coordinator *c, struct client *client);
void federated_send_end(struct rf_coordinator *c, struct client *client);
/* Sends a message, the last one of this connection, which stays until it has been read. */
void federated_dismiss(struct rf_coordinator *c, struct client *client,
                       const struct federated_message *message);
/* Ends a connection. why: for the note; NULL: none. */
void federated_drop(struct rf_coordinator *c, struct client *client, const char *why);
int federated_here(const struct rf_coordinator *c); /* clients that have joined */

/* ---- serve.c: connections -------------------------------------------------------------------- */

int federated_admit(void *owner, int number, struct rf_link *link);
/* Serves all connections; never blocks, and errors of a connection end only it. */
void federated_serve(struct rf_coordinator *c);
/* Sleeps until something arrives, or at most until this time. */
void federated_sleep(struct rf_coordinator *c, uint64_t until_ns);

/* ---- receive.c ------------------------------------------------------------------------------- */

/* Takes what has arrived on a connection. RF_ECORRUPT: it must be dropped. */
int federated_receive(struct rf_coordinator *c, struct client *client);

/* ---- round.c --------------------------------------------------------------------------------- */

/* Begins, continues and ends rounds; *next_ns: when to look again, if nothing arrives. */
int federated_advance(struct rf_coordinator *c, uint64_t *next_ns);

/* ---- mean.c ---------------------------------------------------------------------------------- */

/* The parameters that follow from the updates of the answered clients, and their weight. */
int federated_mean(struct rf_coordinator *c, double *weight);

/* ---- save.c ---------------------------------------------------------------------------------- */

int federated_save(struct rf_coordinator *c);
int federated_load(struct rf_coordinator *c);

#endif
