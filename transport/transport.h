/* SPDX-License-Identifier: MIT
 *
 * The interface of the transport layer for comm: joining a job (a control link), and moving bytes
 * between its ranks (a transport). The vtables are in base/transport_interface.h;
 * rf_loopback_create, rf_loopback_destroy and rf_provider_list of <ringforge/comm.h> also belong to
 * this layer.
 */
#ifndef RF_TRANSPORT_TRANSPORT_H
#define RF_TRANSPORT_TRANSPORT_H

#include <ringforge/comm.h>
#include <ringforge/ringforge.h> /* rf_now_ns */

#include "base/transport_interface.h"

/* Joins the job at `url` (see rf_comm_open). Blocks until all ranks have joined or the start
 * timeout has passed. rank and size are written on success. opts may be NULL. Free with
 * (*out)->ops->leave. */
RF_MUST_CHECK int rf_bootstrap_join(const char *url, const struct rf_comm_opts *opts, int *rank,
                                    int *size, struct rf_control **out);

/* The alternative: tells the others that this rank declines. See rf_comm_decline. */
RF_MUST_CHECK int rf_bootstrap_decline(const char *url, const struct rf_comm_opts *opts,
                                       const char *why);

/* Collective over `control`: creates the transport for its ranks. provider: NULL or ""
 * (RF_PROVIDER), "auto" (shared memory if all ranks are on one host; within hosts, if some have
 * several; else the best TCP), or a name of the table of providers (providers.h). All ranks must
 * name the same; if not, the error names both sides. why receives one sentence on the choice. A
 * single rank gets a transport within the process. */
RF_MUST_CHECK int rf_transport_create(struct rf_control *control, const char *provider,
                                      struct rf_transport **out, char *why, size_t why_bytes);

/* host_id.c: a number for the host of this process, for the rank-th of a job; the name of its
 * running kernel, and the number of its cores that this process may use. */
uint64_t rf_host_id(int rank);
void rf_host_name(char *out, size_t bytes);
int rf_host_cores(void);

/* A job of some ranks of a running one. Collective over `parent`: every rank calls with the members
 * of its own group, by their ranks in the parent, in their new order; with count 0 it is in none.
 * The new job has the parent's kind and key, and is independent of it. */
RF_MUST_CHECK int rf_split_join(struct rf_control *parent, const int *members, int count,
                                double timeout_s, struct rf_control **control);
/* The transport of such a job. provider: that of the parent. */
RF_MUST_CHECK int rf_split_transport(struct rf_control *control, const char *provider,
                                     struct rf_transport **out, char *why, size_t why_bytes);

/* Whether this rank joined over a loopback address, or is a thread beside the others. */
bool rf_control_is_local(struct rf_control *control);

/* Collective: enables survivors to find each other. Called once for every control link. */
RF_MUST_CHECK int rf_survivors_prepare(struct rf_control *control, double timeout_s);
/* A job of the ranks of a running or broken one that are alive and also call this, in their old
 * order. members (of the size of parent) receives their ranks in the parent, *count their number.
 * Blocks until all living ranks have come, or for timeout_s, after which the others continue
 * without them. All ranks that return 0 with the same job agree on its members. RF_EPEER: this rank
 * has been left out. */
RF_MUST_CHECK int rf_survivors_join(struct rf_control *parent, double timeout_s, int *members,
                                    int *count, struct rf_control **control);

/* join_listener.c, on rank 0: a listener for newcomers, which are processes that ask to join a
 * running job. rf_join_listener_close and the calls on one are in <ringforge/comm.h>. key: NULL is
 * RF_JOB_KEY. RF_EAUTH: no key. */
struct rf_join_listener;
RF_MUST_CHECK int rf_join_listener_create(int port, const char *key, const char *terms,
                                          struct rf_join_listener **out);

/* terms.c: lines "name=value" that must be equal on all ranks. Text after a TAB in a value is
 * compared, but not shown. */
enum { RF_TERMS_BYTES = 16 << 10 };
struct rf_terms_difference {
    char name[84], mine[84], theirs[84]; /* truncated if long */
    bool known;                          /* `mine` has a line with this name */
};
/* Whether `theirs` has a line that `mine` lacks: the first such line. Lines that only `mine` has
 * are not compared. Pure; `theirs` may be any text. */
bool rf_terms_differ(const char *mine, const char *theirs, struct rf_terms_difference *out);
/* Compares the terms of a running job and a newcomer. False: `why` receives one sentence on the
 * first difference. */
bool rf_terms_agree(const char *job, const char *theirs, char *why, size_t why_bytes);

/* What the ranks of a job need to join the larger one. */
struct rf_growth {
    char host[64];
    int32_t port, size;
    uint8_t job[16];
};
/* Rank 0: opens the listener of the larger job and invites `count` newcomers, whose ranks follow
 * those of `parent`. RF_EAGAIN: too few newcomers answer; none was invited. */
RF_MUST_CHECK int rf_growth_begin(struct rf_join_listener *join_listener, struct rf_control *parent,
                                  int count, struct rf_growth *out, int *listener);
/* Each rank of parent: joins the larger job. Takes ownership of the listener (rank 0's; -1
 * elsewhere). Blocks until all ranks have joined or the time is over; parent is unchanged. */
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

/* A world of size one that destroys itself with its last end: for `self:` and single ranks. */
RF_MUST_CHECK int rf_self_transport(struct rf_transport **out);
RF_MUST_CHECK int rf_self_control(struct rf_control **out);

#endif
