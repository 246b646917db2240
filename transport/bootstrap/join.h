/* SPDX-License-Identifier: MIT
 *
 * Joining a job whose rank, size and rendezvous are known: rank 0 gathers the others, the others
 * connect to it. bootstrap.c finds these out.
 */
#ifndef RF_TRANSPORT_JOIN_H
#define RF_TRANSPORT_JOIN_H

#include <ringforge/comm.h>

#include "../control/link.h"
#include "handshake.h"

struct rf_board;
struct rf_control;

struct rf_meeting {
    char host[256];
    int port;
    const char
        *file; /* where rank 0 publishes its address; NULL = host and port are known to all */
    char file_name[512];          /* what `file` points to, where it is not the caller's */
    const struct rf_board *board; /* the same for a launcher's table; NULL = there is none */
    bool listens;                 /* rank 0: `listener` is open already, at host and port */
    int listener;
    int rank, size;
    double timeout_s;
    struct rf_job_key key;
};

/* Rank 0: waits for all ranks. links[r] for r > 0, and the listening socket, which stays open. */
int rf_join_gather(struct rf_meeting *meeting, struct rf_link *links, int *listener);
/* Others: waits for rank 0, and until all others have joined. */
int rf_join_connect(struct rf_meeting *meeting, struct rf_link *link);

/* launcher.c: where the ranks of a launcher that says nothing about it meet: under MPI and srun on
 * one host in a file, across hosts where rank 0 says on the launcher's board, under an srun without
 * one on the first host. RF_EINVAL: cannot be known. */
int rf_launcher_meeting(struct rf_meeting *meeting);

/* Proves the job key to the other end of `link`, and checks that it knows the key too. */
int rf_join_authenticate(const struct rf_meeting *meeting, struct rf_link *link, uint64_t deadline);

/* The error that a frame of kind RF_FRAME_REFUSE is. */
struct rf_frame;
int rf_join_refusal(const struct rf_frame *frame);

/* bootstrap.c: host and port of "tcp://host:port". */
int rf_meeting_parse(const char *url, struct rf_meeting *meeting);

/* torchrun itself listens on the MASTER_PORT that it hands out: then another one, made of that and
 * the run's name, the same on all ranks. */
void rf_launcher_port(struct rf_meeting *meeting);

/* Either of them, and the control link that comes of it. */
int rf_meet(struct rf_meeting *meeting, struct rf_control **out);

/* rendezvous.c: the file of `file:` URLs. write replaces the file atomically. read: RF_EAGAIN while
 * there is none. */
int rf_rendezvous_write(const char *path, const char *host, int port, const uint8_t *job);
int rf_rendezvous_read(const char *path, char *host, size_t host_bytes, int *port, uint8_t *job);

#endif
