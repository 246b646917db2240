/* SPDX-License-Identifier: MIT
 *
 * A client of a coordinator: what its files share. Belongs to one thread.
 */
#ifndef RF_FEDERATED_CLIENT_H
#define RF_FEDERATED_CLIENT_H

#include "secure.h"

struct rf_client {
    struct rf_client_opts opts; /* without pointers to the caller's memory, but user */
    char name[RF_NAME_BYTES + 1];
    struct rf_rounds_params params;
    struct rf_rounds_rule rule;
    char rule_text[FEDERATED_RULE_BYTES];
    char *host, *terms;
    struct rf_job_key key;
    uint64_t timeout_ns;

    bool here; /* connected, and has sent JOIN */
    struct rf_channel channel;
    uint64_t since_ns, heard_ns;         /* of the connection; the coordinator, last */
    uint64_t sent_bytes, received_bytes; /* on connections that have ended */

    int64_t step; /* local steps, and those since the last exchange */
    int64_t in_round;
    bool has_round, ended;
    uint64_t run;
    int64_t round;
    float *start;  /* the parameters of the round; or those that are arriving */
    float *update; /* what is sent: of the round, or the first parameters */
    float *before; /* with a proximal term: the parameters before the local step; else NULL */
    bool pulled;   /* since the last step */
    bool has_update;
    double weight;

    int64_t out_done; /* values of what is sent that are queued; -1: none are due */
    bool masked;      /* the update is sent with masks: each value is two of them */
    struct secure_client *secure;
    bool secure_here;         /* the coordinator has said a threshold on this connection */
    uint64_t *piece, *stream; /* of masked values; NULL: it never has */
    enum rf_federated_message arriving;
    uint64_t arriving_run;
    int64_t arriving_round, in_done;
};

/* Sends the update, if there is one, and waits for the parameters of the next round, which are in
 * `start` then; connects if necessary, again and again until timeout_s is over. */
int federated_exchange(struct rf_client *client);
/* privacy.c: scales the values to this norm, if theirs is larger, and adds noise * clip N(0, 1). */
void federated_privatise(float *values, int64_t count, double clip, double noise);
/* Ends the connection, politely if it works. */
void federated_disconnect(struct rf_client *client);

#endif
