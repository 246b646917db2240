/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --accept` and `--join`: processes that join a running job at one of its saves.
 * Who may wait for it, how many are accepted, the new mesh, and the state they get. train_rank.c
 * decides when that happens.
 */
#include <string.h>

#include "train.h"

#define GROW_S 30.0 /* for called newcomers: training stands still */

/* ---- the job --------------------------------------------------------------------------------- */

/* The number of ranks for one more along the data axis. */
static int ranks_of_one(const struct train_options *o, const struct rf_mesh *mesh)
{
    struct setup setup = o->setup;
    setup.mesh = *mesh;
    return setup_ranks(&setup) / mesh->dp;
}

static bool widen(const struct train_options *o, const struct rf_mesh *from, int ranks,
                  struct rf_mesh *out)
{
    const int each = ranks_of_one(o, from), dp = ranks / each;
    if (ranks % each || dp > o->setup.policy.micro_batches || (from->shard && dp % from->shard))
        return false;
    *out = *from;
    out->dp = dp;
    return true;
}

bool train_mesh_grown(const struct train_options *o, const struct rf_mesh *from, int ranks,
                      struct rf_mesh *out)
{
    return widen(o, &o->setup.mesh, ranks, out) || widen(o, from, ranks, out);
}

static void tell_why(struct rf_join_listener *join_listener, const struct train_options *o,
                     int ranks, int waiting)
{
    char text[300], mesh[64];
    const struct rf_mesh *m = &o->setup.mesh;
    const int step = ranks_of_one(o, m) * (m->shard ? m->shard : 1);
    const long long pieces = (long long)o->setup.policy.micro_batches;
    if (ranks / ranks_of_one(o, m) >= pieces)
        snprintf(text, sizeof(text),
                 "its %d ranks share %lld micro-batches (--micro-batches), which leaves no work "
                 "for more: waiting for a place to become free",
                 ranks, pieces);
    else
        snprintf(text, sizeof(text),
                 "its mesh (%s) grows by %d ranks at a time, and %d %s: waiting for more",
                 setup_mesh_text(&o->setup, mesh), step, waiting, waiting == 1 ? "waits" : "wait");
    rf_join_listener_set_status(join_listener, text);
}

int train_newcomers(struct rf_join_listener *join_listener, const struct train_options *o,
                    const struct rf_mesh *mesh, int ranks)
{
    const int waiting = join_listener ? rf_join_listener_waiting(join_listener) : 0;
    struct rf_mesh grown;
    /* No more than the existing ranks: whatever happens to the newcomers, those with the state are
     * not a minority. */
    for (int n = waiting < ranks ? waiting : ranks; n > 0; n--)
        if (train_mesh_grown(o, mesh, ranks + n, &grown))
            return n;
    if (waiting > 0)
        tell_why(join_listener, o, ranks, waiting);
    return 0;
}

void train_join_listener_set_status(struct rf_join_listener *join_listener,
                                    const struct train_options *o)
{
    char text[128] = "it takes in newcomers behind an exchange of its workers";
    if (!join_listener)
        return;
    if (!train_sync_on(o))
        snprintf(text, sizeof(text), "it takes in newcomers when it saves, every %lld steps",
                 (long long)o->save_every);
    rf_join_listener_set_status(join_listener, text);
}

int train_join_listener_open(const struct tool_command *command, const struct train_options *o,
                             const struct rf_comm *comm, struct rf_join_listener **out)
{
    char *terms = train_terms_of_job(o);
    if (!terms)
        return tool_error(command, "out of memory");
    const int rc = rf_join_listener_open(comm, (int)o->accept, NULL, terms, out);
    free(terms);
    return rc < 0 ? tool_library_error(command, rf_comm_rank(comm)) : TOOL_OK;
}

int train_grow(const struct train_options *o, struct rf_comm *comm,
               struct rf_join_listener *join_listener, int count, struct rf_comm **out)
{
    const struct rf_comm_opts opts = {
        .provider = o->ranks.provider, .timeout_s = o->ranks.timeout_s, .start_timeout_s = GROW_S};
    return rf_comm_grow(comm, join_listener, count, &opts, out);
}

/* ---- newcomers ------------------------------------------------------------------------------- */

static void note(void *user, const char *text)
{
    const struct train_options *o = user;
    printf("waiting to join the job at %s: %s\n", o->join, text);
    fflush(stdout);
}

int train_join(const struct tool_command *command, struct train_options *o, struct rf_comm **out)
{
    char url[300];
    char *terms = train_terms_of_newcomer(o);
    if (!terms)
        return tool_error(command, "out of memory");
    snprintf(url, sizeof(url), "tcp://%s", o->join);
    const struct rf_join_opts opts = {
        .comm = {.provider = o->ranks.provider, .timeout_s = o->ranks.timeout_s},
        .terms = terms,
        .note = note,
        .user = o};
    const int rc = rf_comm_join(url, &opts, out);
    free(terms);
    return rc < 0 ? tool_library_error(command, -1) : TOOL_OK;
}

int train_share_job_state(struct rf_comm *comm, struct train_job_state *state)
{
    return rf_broadcast(comm, state, sizeof(*state), RF_U8, 0, NULL);
}

void train_take_job_state(struct train_options *o, const struct train_job_state *state)
{
    o->setup.mesh = state->wanted;
    o->setup.policy.batch = o->setup.batch = state->batch;
    o->setup.policy.micro_batches = o->setup.micro_batches = state->micro_batches;
}
