/* SPDX-License-Identifier: MIT
 *
 * Federated training (McMahan et al. 2017): clients keep their data and train locally; a
 * coordinator sends the global parameters, and gets back what each client has made of them. Clients
 * may join late, be slow, end and come back, which the ranks of a communicator may not.
 *
 * In each round the coordinator sends K bytes of f32 parameters to every client that is waiting. A
 * client makes H local steps (the rule's `every`), and sends K bytes: its parameters, or the
 * difference (the rule's `difference`), with its weight n(k). The coordinator averages by n(k) / n,
 * summed in the order of its list of clients, so that the bits depend neither on speeds nor on the
 * order of arrival; the outer rule of rounds.h makes the next parameters of the mean difference.
 *
 * Every client has a name and a key. Connections are authenticated in both directions and
 * encrypted by that key (docs/security.md).
 */
#ifndef RINGFORGE_FEDERATED_H
#define RINGFORGE_FEDERATED_H

#include "rounds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- messages -------------------------------------------------------------------------------- */

/* Everything that is ever sent, in either direction. Parameters are the only numbers of a model or
 * of data among them. */
enum rf_federated_message {
    RF_FEDERATED_JOIN = 1, /* client: version, number of parameters, rule and terms as texts */
    RF_FEDERATED_ASK,      /* coordinator: has no parameters, and asks this client for its own */
    RF_FEDERATED_STATE,    /* client: its parameters follow */
    RF_FEDERATED_ROUND,    /* coordinator: run and number of the round; the parameters follow */
    RF_FEDERATED_UPDATE, /* client: number of the round, weight; parameters or difference follow */
    RF_FEDERATED_VALUES, /* both: a piece of what follows */
    RF_FEDERATED_END,    /* coordinator: as ROUND; training has ended, with these parameters */
    RF_FEDERATED_HEARTBEAT, /* coordinator: empty */
    RF_FEDERATED_REFUSE,    /* coordinator: status, and a sentence */
    RF_FEDERATED_LEAVE,     /* client: empty */
    /* Of secure aggregation. All but the first have run and number of the round. */
    RF_FEDERATED_SECURE,  /* coordinator, after JOIN: the threshold */
    RF_FEDERATED_READY,   /* client: has an update; its keys of this round, signed; a hash */
    RF_FEDERATED_PEERS,   /* coordinator: names and keys of all who are ready */
    RF_FEDERATED_SHARES,  /* client: two shares for each peer, sealed for it; coordinator: those
                           * that the peers have sealed for this client */
    RF_FEDERATED_MASKED,  /* client: masked parameters or difference follow, and the weight */
    RF_FEDERATED_UNMASK,  /* coordinator: the set of those whose MASKED has arrived */
    RF_FEDERATED_CONFIRM, /* client: its signature of that set */
    RF_FEDERATED_AGREED,  /* coordinator: all signatures */
    RF_FEDERATED_REVEAL,  /* client: a share for each peer */
    RF_FEDERATED_MESSAGES
};

struct rf_federated_message_info {
    const char *name;
    bool from_client, from_coordinator; /* who may send it */
    uint32_t least, most;               /* its bytes; anything else is refused */
    /* In pieces of VALUES: 4 bytes for each parameter; of MASKED 8, and 8 for the weight. */
    bool values_follow;
};

/* NULL: there is no such message. */
RF_EXPORT const struct rf_federated_message_info *rf_federated_message_get_info(int message);

/* What a round costs: bytes of a client with all overhead, but without heartbeats; the memory of
 * the coordinator for updates; and messages, one after the other. */
struct rf_federated_usage {
    uint64_t sent_bytes, received_bytes, memory_bytes;
    int messages;
};

/* What `count` parameters cost if all clients take part. secure: as in rf_coordinator_opts. Pure.
 * Errors: RF_EINVAL, RF_ENOTSUP (the rule is none of a coordinator's). */
RF_API int rf_federated_usage(const struct rf_rounds_rule *rule, int64_t count, int clients,
                              int secure, struct rf_federated_usage *out);

/* ---- the coordinator ------------------------------------------------------------------------- */

/* Letters, digits, '.', '-' and '_', at most 63; the key is any text that is not empty, and of a
 * peer its identity. */
struct rf_federated_client_key {
    const char *name, *key;
};

/* What a client did in a round. */
enum rf_federated_part {
    RF_FEDERATED_ABSENT = 0, /* was not asked */
    RF_FEDERATED_COUNTED,    /* its update is in the mean */
    RF_FEDERATED_LOST,       /* its connection ended before its update was complete */
    RF_FEDERATED_LATE,       /* had not answered at the deadline */
    RF_FEDERATED_FAILED      /* took part in a secure aggregation of which too few were left */
};

/* A round that has ended; the arrays have an entry for each client of the list. */
struct rf_federated_round {
    int64_t round; /* from 0 */
    int64_t count;
    const float *values; /* the new parameters */
    const enum rf_federated_part *parts;
    const double *weights; /* n(k), 0 unless counted; of a secure aggregation 0 */
    double weight;         /* the sum of n(k) */
    int counted;           /* 0: the parameters are those of before */
    uint64_t sent_bytes,
        received_bytes; /* by the coordinator, since it was opened, with overhead */
    uint64_t ns;        /* from the start of the round */
};

/* Secure aggregation (Bonawitz et al. 2017) by pairwise masks, and shares for clients that drop
 * out: the coordinator gets the sum of the updates and that of the weights, and nothing else of
 * them. `secure` is its threshold t, which must be more than half of the clients of the list: it
 * gets no sum of fewer than t updates, and t of those whose updates are in a sum must stay until
 * the masks are removed. If fewer are left, the round has no mean, and the next one begins with
 * those. Updates are added as integers of 64 bits, each rounded to 2^-40, or 2^-24 if the rule is
 * weighted; a client refuses a value above 2^15, or one above 2^31 with its weight. At most 255
 * clients. docs/decentralised.md says what is assumed of whom.
 */

/* Zero is the default of every field that has one. */
struct rf_coordinator_opts {
    int port; /* 0: any free one; on all addresses of the host */
    const struct rf_federated_client_key *clients;
    int client_count;
    /* `every`, `difference`, `outer`, `outer_lr`, `weighted`, `proximal`; a rule that needs more of
     * rounds.h is refused by name. */
    const struct rf_rounds_rule *rule;
    /* The first parameters. NULL: those of the first client that joins. */
    const float *initial;
    int64_t count;    /* with `initial` */
    int64_t rounds;   /* to make, 1 or more; those before a restart count */
    int min_clients;  /* fewer updates make no mean; 0 = 1; at least `secure` */
    int secure;       /* the threshold of secure aggregation, 2 or more; 0: none */
    double round_s;   /* from the start of a round, after which it ends without those that have not
                       * answered; 0 = 600. Each exchange of a secure aggregation, of
                       * those that have answered, may take as long */
    double wait_s;    /* for min_clients, without progress; 0 = 600; then RF_ETIMEOUT */
    const char *save; /* a folder: the state after each round, durable; NULL: none */
    int64_t save_every; /* rounds; 0 = 1; after the last one always */
    bool resume;        /* continue from the state in `save` */
    /* After each round, on the thread of rf_coordinator_run. Not 0: stop. NULL: none. */
    int (*ended)(void *user, const struct rf_federated_round *round);
    /* What happens to clients: they join, are refused, are lost. A sentence. NULL: to the log. */
    void (*note)(void *user, const char *text);
    void *user;
};

struct rf_coordinator;

/* Listens. Copies everything of opts but `user`. Errors: RF_EINVAL (also for two clients of one
 * name or one key), RF_EAUTH (no client, or one without a key: nothing listens without keys),
 * RF_EBUSY (the port, or the folder), RF_ENOMEM, RF_ECORRUPT (a damaged state), RF_EIO. */
RF_API int rf_coordinator_open(const struct rf_coordinator_opts *opts, struct rf_coordinator **out);
RF_EXPORT int rf_coordinator_port(const struct rf_coordinator *coordinator);
/* Makes all rounds, tells the clients that training has ended, and returns when they have the
 * parameters, or after 10 s. Blocking; one thread. A round with fewer than min_clients updates
 * keeps those that it has, and is sent to clients that come; if for wait_s none comes,
 * RF_ETIMEOUT names those that are missing. RF_EABORT: stopped. */
RF_API int rf_coordinator_run(struct rf_coordinator *coordinator);
/* Lets rf_coordinator_run return. May be called on any thread, and by a signal handler. */
RF_EXPORT void rf_coordinator_stop(struct rf_coordinator *coordinator);
/* Rounds that have ended, also before a restart. */
RF_EXPORT int64_t rf_coordinator_rounds(const struct rf_coordinator *coordinator);
/* NULL is allowed. */
RF_EXPORT void rf_coordinator_close(struct rf_coordinator *coordinator);

/* ---- privacy --------------------------------------------------------------------------------- */

/* Releases of a sum of contributions whose norm is at most 1, each with Gaussian noise of the
 * standard deviation `noise`. */
struct rf_privacy {
    double rate;  /* the probability with which a contribution is in a release, chosen anew and
                   * unknown to others (a Poisson sample); 1: it is in all */
    double noise; /* > 0 */
    int64_t releases;
    double delta; /* between 0 and 1 */
};

/* The epsilon of (epsilon, delta)-differential privacy for neighbours that differ by one
 * contribution: the least over Renyi orders 1.1, 1.2, ..., 10.9, 11, ..., 63, 128, 256, 512 and
 * 1024. Pure and thread-safe. RF_EINVAL. */
RF_API int rf_privacy_epsilon(const struct rf_privacy *privacy, double *out);

/* ---- a client -------------------------------------------------------------------------------- */

/* The public key, 64 hexadecimal digits, by which other clients know this one. It follows from a
 * secret of this client, which the coordinator does not have. NULL: RF_IDENTITY_KEY of the
 * environment. Errors: RF_EAUTH (no secret). */
RF_API int rf_client_identity(const char *secret, char out[65]);

struct rf_client_opts {
    const char *host;
    int port;
    const char *name, *key;            /* key NULL: RF_CLIENT_KEY of the environment */
    const struct rf_rounds_rule *rule; /* that of the coordinator */
    /* Lines "name=value" that all clients must have alike, as those of rf_comm_check_terms: what
     * shapes the model. NULL: none. */
    const char *terms;
    /* Differential privacy of the client, against the coordinator and all others: its difference is
     * scaled to the norm `clip` if it is larger, and gets Gaussian noise of the standard deviation
     * noise * clip. A client that is in all rounds has the epsilon of rf_privacy_epsilon with rate
     * 1, this noise, and the number of rounds. Its weights, its times and the first parameters, if
     * they are its own, are not protected. 0 = none; need a rule with `difference`. */
    float clip, noise;
    /* 2 or more: a coordinator without secure aggregation, or with a lower threshold, is refused.
     * 0: as the coordinator says. */
    int secure;
    const char *secret; /* NULL: RF_IDENTITY_KEY of the environment; empty: no identity */
    /* Names and identities of all clients that may be in a secure aggregation, with this one; needs
     * `secure`. A round with another one, or with keys that its member has not signed, is refused.
     * NULL: the coordinator is trusted to hand out the keys of the clients, and not its own. */
    const struct rf_federated_client_key *peers;
    int peer_count;
    double timeout_s; /* to connect, also again; and for a silent coordinator; 0 = 60 */
    /* Every message of this client, with its bytes without overhead, before it is sent or after it
     * has arrived. NULL: none. */
    void (*audit)(void *user, bool sent, enum rf_federated_message message, uint64_t bytes);
    void *user;
};

struct rf_client_stats {
    int64_t step;   /* local steps so far */
    int64_t round;  /* whose parameters the client has now */
    bool exchanged; /* in this step: the parameters are those of another round */
    bool ended;     /* the parameters are the last ones: training is over */
    uint64_t sent_bytes, received_bytes; /* since the client was opened, with overhead */
    uint64_t wait_ns;                    /* in this step, for the network and the other clients */
};

struct rf_client;

/* Connects, and waits for the parameters of a round, which are written to `params`; those before
 * are sent only if the coordinator has none. Blocking. Errors: RF_EAUTH (name and key are not in
 * the coordinator's list; it does not do what `secure` and `peers` say), RF_EINVAL (rule, terms or
 * number of parameters differ: named), RF_ETIMEOUT (not connected within timeout_s), RF_ENOMEM,
 * those of params. */
RF_API int rf_client_open(const struct rf_client_opts *opts, const struct rf_rounds_params *params,
                          struct rf_client **out);
/* Between each local step and rf_client_step, if the rule has a proximal term mu, with the learning
 * rate of the local step: w -= rate mu (w' - w0), with the parameters w' before the local step and
 * w0 at the start of the round. After a step of SGD w is that of the gradient g + mu (w' - w0), if
 * the optimizer has no momentum (Li et al. 2020). After any other one the term is beside its
 * update, as decoupled weight decay is. Reads and writes all parameters. Errors: RF_EINVAL, those
 * of params.
 */
RF_API int rf_client_pull(struct rf_client *client, float rate);
/* After each local step. Every `every` steps of a round sends the update, waits for the next round
 * and writes its parameters. share: n(k) of this round, 0 or more, if the rule is weighted; else 0.
 * If the connection ends, connects again, with the same update if its round is still open.
 * stats may be NULL. Blocking. Errors: RF_EINVAL (also: a parameter is not finite), RF_ETIMEOUT,
 * RF_EBUSY (another process has joined with this client's name and key), RF_EABORT (ended), those
 * of params and of rf_client_open. */
RF_API int rf_client_step(struct rf_client *client, double share, struct rf_client_stats *stats);
/* The number of the round, from 0, whose parameters the client has. */
RF_EXPORT int64_t rf_client_round(const struct rf_client *client);
/* Tells the coordinator that this client leaves. NULL is allowed. */
RF_EXPORT void rf_client_close(struct rf_client *client);

#ifdef __cplusplus
}
#endif
#endif
