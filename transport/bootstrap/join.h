/* SPDX-License-Identifier: MIT
 *
 * Joining a job whose rank, size and rendezvous are known: rank 0 gathers the others, the others
 * connect to it. bootstrap.c determines these.
 */
#ifndef RF_TRANSPORT_JOIN_H
#define RF_TRANSPORT_JOIN_H

#include <ringforge/comm.h>

#include "../control/link.h"
#include "handshake.h"

struct rf_kvs;
struct rf_control;

/* How the ranks of a job find each other. All ranks know host and port, unless rank 0 publishes
 * them in a file or in the launcher's key-value store. */
struct rf_rendezvous {
    char host[256];
    int port;
    const char *file;         /* rank 0 writes its address to it; NULL: no file */
    char file_name[512];      /* the storage of `file`, if it is not the caller's */
    const struct rf_kvs *kvs; /* rank 0 writes its address to it; NULL: no store */
    bool listens;             /* rank 0: `listener` is open already, at host and port */
    int listener;
    int rank, size;
    double timeout_s;
    const char *declines; /* the reason why this rank declines; NULL: it joins */
    struct rf_job_key key;
    /* A job whose ranks, by number `members` (NULL: all), become ranks of this one: if one of them
     * is lost there, nobody waits for it here. NULL: none. */
    struct rf_control *parent;
    const int *members;
    int member_count;
};

/* Rank 0: waits for all ranks. Sets links[r] for r > 0, and the listening socket, which stays open.
 * RF_EABORT: a rank declines; all who arrive within some seconds are told. If rank 0 itself
 * declines: 0, once all have arrived or the time is over, and there is no job. */
int rf_join_gather(struct rf_rendezvous *rendezvous, struct rf_link *links, int *listener);
/* Other ranks: wait for rank 0, and until all others have joined; a declining rank waits until rank
 * 0 has its reason. RF_EABORT: another rank declines. */
int rf_join_connect(struct rf_rendezvous *rendezvous, struct rf_link *link);

/* launcher.c: the rendezvous of ranks whose launcher names none. Under MPI and srun on one host it
 * is a file, across hosts the launcher's key-value store, and under an srun without one the first
 * host. RF_EINVAL: it cannot be determined. */
int rf_launcher_rendezvous(struct rf_rendezvous *rendezvous);

/* Proves a key to the other end of `link`, and checks that the other end knows the key. Version,
 * rank, size and name of the handshake are set; its nonces are filled in. RF_EAUTH: either end does
 * not have the key. */
int rf_join_prove(const struct rf_job_key *key, struct rf_handshake *handshake,
                  struct rf_link *link, uint64_t deadline);

/* The same with the job's key, as this rank. */
int rf_join_authenticate(const struct rf_rendezvous *rendezvous, struct rf_link *link,
                         uint64_t deadline);

/* Makes the error that a frame RF_FRAME_REFUSE carries, and returns it. */
struct rf_frame;
int rf_join_refusal(const struct rf_frame *frame);

/* bootstrap.c: host and port of "tcp://host:port". */
int rf_rendezvous_parse(const char *url, struct rf_rendezvous *rendezvous);

/* torchrun itself listens on the MASTER_PORT that it sets. So this derives another port from that
 * and the run's name, the same on all ranks. */
void rf_launcher_port(struct rf_rendezvous *rendezvous);

/* Joins as rank 0 or as another rank, and makes the control link. */
int rf_rendezvous_join(struct rf_rendezvous *rendezvous, struct rf_control **out);

/* rendezvous_file.c: the file of `file:` URLs. write replaces the file atomically. read: RF_EAGAIN
 * if it does not exist yet. */
int rf_rendezvous_file_write(const char *path, const char *host, int port, const uint8_t *job);
int rf_rendezvous_file_read(const char *path, char *host, size_t host_bytes, int *port,
                            uint8_t *job);

#endif
