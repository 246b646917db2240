/* SPDX-License-Identifier: MIT
 *
 * Newcomers join a running job. Its ranks and the newcomers open a larger communicator while the
 * old one still works, and the old ranks vote over the old one on whether all succeeded. So nothing
 * that a newcomer does before the vote harms the old communicator. The transport layer decides
 * which processes may join, and at which address (join_listener.c, newcomer.c).
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../task.h"
#include "transport/transport.h"

#define DEFAULT_GROW_S 30.0
#define DEFAULT_JOIN_S 60.0
#define LABEL "rf_comm_grow"

/* The library's own terms, then the caller's. */
static int make_terms(bool checksum, const char *own, char **out)
{
    const uint16_t one = 1;
    const size_t bytes = strlen(own) + 128;
    char *terms = rf_alloc(bytes);
    if (!terms)
        return rf_fail(RF_ENOMEM, "no memory for the terms of a job");
    snprintf(terms, bytes, "ringforge=%s\nbyte order=%s\nchecksums=%s\n%s", rf_version(),
             *(const uint8_t *)&one ? "little" : "big", checksum ? "yes" : "no", own);
    *out = terms;
    return 0;
}

int rf_join_listener_open(const struct rf_comm *comm, int port, const char *key, const char *terms,
                          struct rf_join_listener **out)
{
    char *all = NULL;
    if (!comm || !terms || !out)
        return rf_fail(RF_EINVAL, "join: a communicator, terms and a place for the result are "
                                  "needed");
    RETURN_IF_ERROR(make_terms(comm->settings.checksum, terms, &all));
    const int rc = rf_join_listener_create(port, key, all, out);
    rf_free(all);
    return rc;
}

/* Takes ownership of control, even on failure. */
static int open_larger(struct rf_control *control, const struct rf_comm_opts *opts, bool flush,
                       struct rf_comm **out)
{
    struct rf_comm *comm = rf_alloc(sizeof(*comm));
    if (!comm) {
        control->ops->leave(control, 0);
        return rf_fail(RF_ENOMEM, "no memory for a communicator");
    }
    comm->links.control = control;
    comm->rank = control->rank;
    comm->size = control->size;
    comm->settings.flush = flush;
    const int rc = rf_transport_create(control, opts->provider, &comm->links.transport,
                                       comm->links.reason, sizeof(comm->links.reason));
    return rf_comm_adopt(comm, opts, rc, out);
}

/* Rank 0 tells the newcomers that the old ranks continue with this communicator. */
static int confirm(struct rf_comm *comm)
{
    int32_t go_on = 1;
    const struct rf_coll_opts opts = {.label = LABEL};
    return rf_broadcast(comm, &go_on, 1, RF_I32, 0, &opts);
}

/* ---- ranks of the job ------------------------------------------------------------------------ */

/* Broadcast by rank 0. */
struct invitation_result {
    int32_t status;
    struct rf_growth growth;
    char message[200];
};

/* Rank 0 invites the newcomers, and broadcasts the address of the larger job. *listener: rank 0's,
 * or -1. */
static int invite_newcomers(struct rf_comm *comm, struct rf_join_listener *join_listener, int count,
                            struct rf_growth *growth, int *listener)
{
    struct invitation_result invited = {0};
    const struct rf_coll_opts opts = {.label = LABEL};
    *listener = -1;
    if (comm->rank == 0) {
        invited.status = join_listener ? rf_growth_begin(join_listener, comm->links.control, count,
                                                         &invited.growth, listener)
                                       : rf_fail(RF_EINVAL, "rank 0 needs a join listener");
        if (invited.status < 0)
            snprintf(invited.message, sizeof(invited.message), "%.199s", rf_last_error()->message);
    }
    RETURN_IF_ERROR(rf_broadcast(comm, &invited, sizeof(invited), RF_U8, 0, &opts));
    invited.message[sizeof(invited.message) - 1] = 0;
    *growth = invited.growth;
    return invited.status < 0 ? rf_fail(RF_EAGAIN, "grow: %s", invited.message) : 0;
}

/* Whether all ranks could join the larger job. */
static int vote(struct rf_comm *comm, int rc)
{
    const struct rf_error error = *rf_last_error();
    const struct rf_coll_opts opts = {.label = LABEL};
    int32_t mine = rc < 0, worst = 0;
    RETURN_IF_ERROR(rf_all_reduce(comm, &mine, &worst, 1, RF_I32, RF_MAX, &opts));
    if (rc < 0)
        return rf_fail_rank(RF_EAGAIN, error.rank, "grow: %.600s", error.message);
    return worst ? rf_fail(RF_EAGAIN, "grow: another rank could not join the larger job") : 0;
}

static int check(struct rf_comm *comm, const struct rf_comm_opts *opts, struct rf_comm **out)
{
    if (!comm || !out)
        return rf_fail(RF_EINVAL, "grow: the communicator or out is NULL");
    if (opts)
        RETURN_IF_ERROR(rf_check_seconds("grow", opts->start_timeout_s));
    return rf_group_refuse(comm, "grow");
}

int rf_comm_grow(struct rf_comm *comm, struct rf_join_listener *join_listener, int count,
                 const struct rf_comm_opts *options, struct rf_comm **out)
{
    struct rf_comm_opts opts = options ? *options : (struct rf_comm_opts){0};
    struct rf_control *control = NULL;
    struct rf_comm *larger = NULL;
    struct rf_growth growth;
    int listener;
    RETURN_IF_ERROR(check(comm, options, out));
    opts.start_timeout_s = opts.start_timeout_s > 0 ? opts.start_timeout_s : DEFAULT_GROW_S;
    opts.checksum = comm->settings.checksum;
    RETURN_IF_ERROR(invite_newcomers(comm, join_listener, count, &growth, &listener));
    int rc = rf_growth_join(comm->links.control, &growth, listener, opts.key, opts.start_timeout_s,
                            &control);
    if (rc == 0)
        rc = open_larger(control, &opts, comm->settings.flush, &larger);
    rc = vote(comm, rc);
    if (rc < 0 && larger) {
        const struct rf_error error = *rf_last_error();
        rf_comm_abort(larger, "the job goes on without its newcomers");
        rf_comm_close(larger);
        rf_fail_error(&error);
    }
    if (rc < 0) {
        rf_set_thread_rank(rf_comm_job_rank(comm, comm->rank)); /* adopting has changed it */
        return rc;
    }
    if (confirm(larger) < 0) /* all have voted, and the next call on it fails anyway */
        rf_log("comm", 1, "a rank was lost at the end of growing: %s", rf_last_error()->message);
    *out = larger;
    return 0;
}

/* ---- newcomers ------------------------------------------------------------------------------- */

/* Whether another attempt may succeed. */
static bool is_temporary(int status)
{
    return status == RF_EPEER || status == RF_EABORT || status == RF_ENET ||
           status == RF_ETIMEOUT || status == RF_EAGAIN;
}

/* RF_EAGAIN: this process was invited, but the attempt failed. */
static int try_to_join(const struct rf_join_request *request, const struct rf_comm_opts *opts,
                       struct rf_comm **out)
{
    struct rf_invitation invitation;
    struct rf_control *control = NULL;
    struct rf_comm *comm = NULL;
    RETURN_IF_ERROR(rf_newcomer_wait(request, &invitation));
    int rc = rf_newcomer_join(request, &invitation, opts->start_timeout_s, &control);
    if (rc == 0)
        rc = open_larger(control, opts, false, &comm);
    if (rc == 0)
        rc = confirm(comm);
    if (rc < 0) {
        const struct rf_error error = *rf_last_error();
        (void)rf_comm_close(comm);
        rf_fail_error(&error);
        return is_temporary(rc) ? RF_EAGAIN : rc;
    }
    *out = comm;
    return 0;
}

int rf_comm_join(const char *url, const struct rf_join_opts *options, struct rf_comm **out)
{
    long checksum = 0;
    char *terms = NULL, text[400];
    if (!url || !options || !options->terms || !out)
        return rf_fail(RF_EINVAL, "join: a URL, terms and a place for the result are needed");
    struct rf_comm_opts opts = options->comm;
    RETURN_IF_ERROR(rf_check_seconds("join", opts.start_timeout_s));
    RETURN_IF_ERROR(rf_check_seconds("join", opts.timeout_s));
    RETURN_IF_ERROR(rf_env_int("RF_CHECKSUM", 0, &checksum));
    opts.checksum = opts.checksum || checksum != 0;
    opts.start_timeout_s = opts.start_timeout_s > 0 ? opts.start_timeout_s : DEFAULT_JOIN_S;
    RETURN_IF_ERROR(make_terms(opts.checksum, options->terms, &terms));
    const struct rf_join_request request = {.url = url,
                                            .key = opts.key,
                                            .terms = terms,
                                            .timeout_s = opts.start_timeout_s,
                                            .note = options->note,
                                            .user = options->user};
    int rc;
    while ((rc = try_to_join(&request, &opts, out)) == RF_EAGAIN) {
        snprintf(text, sizeof(text),
                 "the job went on without this process, which asks again: "
                 "%.300s",
                 rf_last_error()->message);
        if (options->note)
            options->note(options->user, text);
    }
    rf_free(terms);
    return rc;
}
