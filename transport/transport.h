/* SPDX-License-Identifier: MIT
 *
 * What the transport layer offers to comm: ways to join a job (a control link), and ways to move
 * bytes between its ranks (a transport). The vtables are in base/transport_interface.h;
 * rf_loopback_create, rf_loopback_destroy and rf_provider_list of <ringforge/comm.h> live in this
 * layer too.
 */
#ifndef RF_TRANSPORT_TRANSPORT_H
#define RF_TRANSPORT_TRANSPORT_H

#include <ringforge/comm.h>
#include <ringforge/ringforge.h> /* rf_now_ns */

#include "base/transport_interface.h"

/* Joins the job at `url` (see rf_comm_open). Blocks until all ranks are there or the start timeout
 * has passed. rank and size are written on success. opts may be NULL. Free with
 * (*out)->ops->leave. */
RF_MUST_CHECK int rf_bootstrap_join(const char *url, const struct rf_comm_opts *opts, int *rank,
                                    int *size, struct rf_control **out);

/* Instead of it: the others are told that this rank does not join. See rf_comm_decline. */
RF_MUST_CHECK int rf_bootstrap_decline(const char *url, const struct rf_comm_opts *opts,
                                       const char *why);

/* Collective over `control`: the transport for its ranks. provider: NULL or "" (RF_PROVIDER),
 * "auto" (shared memory where all ranks are on one host; within hosts, where some have several;
 * else the best TCP), or a name of the table of providers (providers.h). All ranks must ask for the
 * same; where they do not, the error names both sides. why receives one sentence on the choice. One
 * rank alone gets a transport within the process. */
RF_MUST_CHECK int rf_transport_create(struct rf_control *control, const char *provider,
                                      struct rf_transport **out, char *why, size_t why_bytes);

/* host_id.c: a number for the host that this process is on, which is to be the rank-th of a job;
 * which running kernel that is, and how many of its cores this process may use. */
uint64_t rf_host_id(int rank);
void rf_host_name(char *out, size_t bytes);
int rf_host_cores(void);

/* A job of some ranks of a running one. Collective over `parent`: every rank of it calls, with the
 * members of its own group, by their ranks in the parent, in their new order; or with count 0, and
 * is in none. The new job has the parent's kind and key, and lives on its own. */
RF_MUST_CHECK int rf_split_join(struct rf_control *parent, const int *members, int count,
                                double timeout_s, struct rf_control **control);
/* The transport of such a job. provider: that of the parent. */
RF_MUST_CHECK int rf_split_transport(struct rf_control *control, const char *provider,
                                     struct rf_transport **out, char *why, size_t why_bytes);

/* Whether this rank joined over a loopback address, or is a thread beside the others. */
bool rf_control_is_local(struct rf_control *control);

/* Collective: so that survivors will find each other. Called once for every control link. */
RF_MUST_CHECK int rf_survivors_prepare(struct rf_control *control, double timeout_s);
/* A job of those ranks of a running or broken one that are alive and call this too, in their old
 * order: members (of the size of parent) receives their ranks in the parent, *count how many.
 * Blocks until everybody who is alive has come, or for timeout_s, after which the others go on
 * without; all who return 0 with each other's job agree about who is in it. RF_EPEER: this rank has
 * been left out.
 */
RF_MUST_CHECK int rf_survivors_join(struct rf_control *parent, double timeout_s, int *members,
                                    int *count, struct rf_control **control);

/* join_listener.c, on rank 0: where newcomers wait, which are processes that ask to join a running
 * job. rf_join_listener_close and the calls on one are in <ringforge/comm.h>. key: NULL is
 * RF_JOB_KEY. RF_EAUTH: there is none. */
struct rf_join_listener;
RF_MUST_CHECK int rf_join_listener_create(int port, const char *key, const char *terms,
                                          struct rf_join_listener **out);

/* terms.c: lines "name=value" of what has to be equal on all ranks. What follows a TAB in a value is
 * compared, and not shown. */
enum { RF_TERMS_BYTES = 16 << 10 };
struct rf_terms_difference {
    char name[84], mine[84], theirs[84]; /* cut off where they are long */
    bool known;                          /* `mine` has a line of that name */
};
/* Whether a line of `theirs` is not one of `mine`: the first such line. Lines that only `mine` has
 * are not compared. Pure; `theirs` may be any text. */
bool rf_terms_differ(const char *mine, const char *theirs, struct rf_terms_difference *out);
/* Of a running job and a newcomer. False: `why` receives one sentence on the first difference. */
bool rf_terms_agree(const char *job, const char *theirs, char *why, size_t why_bytes);

/* What the ranks of a job need in order to join the larger one. */
struct rf_growth {
    char host[64];
    int32_t port, size;
    uint8_t job[16];
};
/* Rank 0: opens the listener of the larger job and invites `count` newcomers, whose ranks follow
 * those of `parent`. RF_EAGAIN: fewer newcomers answer; none was invited. */
RF_MUST_CHECK int rf_growth_begin(struct rf_join_listener *join_listener, struct rf_control *parent,
                                  int count, struct rf_growth *out, int *listener);
/* Each rank of parent: joins the larger job. Takes the listener (rank 0's; -1 elsewhere). Blocks
 * until all ranks have joined or the time is over; parent stays as it is. */
RF_MUST_CHECK int rf_growth_join(struct rf_control *parent, const struct rf_growth *growth,
                                 int listener, const char *key, double timeout_s,
                                 struct rf_control **out);

/* newcomer.c: the newcomer's side. */
struct rf_join_request {
    const char *url, *key, *terms; /* url: tcp://host:port; key: NULL is RF_JOB_KEY */
    double timeout_s;              /* until rank 0 answers; starts again if rank 0 goes away */
    void (*note)(void *user, const char *text); /* or NULL */
    void *user;
};
struct rf_invitation {
    int port, rank, size;
    uint8_t job[16];
};
/* Blocks until this process is invited. */
RF_MUST_CHECK int rf_newcomer_wait(const struct rf_join_request *request,
                                   struct rf_invitation *out);
/* Joins the larger job, as rf_growth_join. */
RF_MUST_CHECK int rf_newcomer_join(const struct rf_join_request *request,
                                   const struct rf_invitation *invitation, double timeout_s,
                                   struct rf_control **out);

/* The two ends of `rank` in a loopback world. Each may be opened once; both must be closed before
 * rf_loopback_destroy. A transport and its control link belong to the thread of that rank. */
RF_MUST_CHECK int rf_loopback_transport(struct rf_loopback *world, int rank,
                                        struct rf_transport **out);
RF_MUST_CHECK int rf_loopback_control(struct rf_loopback *world, int rank, struct rf_control **out);

/* A world of one that destroys itself with its last end: what `self:` and single ranks use. */
RF_MUST_CHECK int rf_self_transport(struct rf_transport **out);
RF_MUST_CHECK int rf_self_control(struct rf_control **out);

#endif
