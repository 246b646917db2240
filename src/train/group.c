/* SPDX-License-Identifier: MIT
 *
 * A run of several ranks as one worker: its first rank reads and writes the trained parameters of
 * the whole model, and the others give and take what they have of them (rf_run_group_attend).
 */
#include <ringforge/ringforge.h>

#include "../base/base.h"
#include "group.h"

/* Longer than a rank waits for anything: the first rank may wait for other workers. */
#define FOREVER_S 1e9

struct rf_run_group {
    struct rf_run *run;
    int rank, ranks;
    int64_t count, wide; /* of the whole model: parameters; and with gradients of uses apart */
    bool plain;          /* one rank, which has them in the order of the whole model */
    struct rf_rounds_params params; /* of this rank */
    struct rf_group_runs has[RF_GROUP_KINDS];
    /* Of all ranks on the first one, and of the others those that they give to it. */
    struct rf_group_runs *held, *given[RF_GROUP_KINDS];
    float *own, *stage;
    uint64_t sent_bytes;
};

enum command { READ = 1, WRITE, GRADS, DONE };

/* ---- opening --------------------------------------------------------------------------------- */

static int send_runs(struct rf_run *run, const struct rf_group_runs *runs, int peer)
{
    int64_t sizes[2] = {(int64_t)runs->count, runs->values};
    RETURN_IF_ERROR(rf_run_send(run, sizes, sizeof sizes, peer, "worker"));
    return runs->count
               ? rf_run_send(run, runs->list, runs->count * sizeof *runs->list, peer, "worker")
               : 0;
}

/* From a rank of the same run, whose library and plan have been compared. */
static int receive_runs(struct rf_run *run, struct rf_group_runs *out, int peer)
{
    int64_t sizes[2];
    RETURN_IF_ERROR(rf_run_recv(run, sizes, sizeof sizes, peer, "worker"));
    out->list = rf_alloc((size_t)sizes[0] * sizeof *out->list + 1);
    if (!out->list)
        return rf_fail(RF_ENOMEM, "exchange: out of host memory");
    out->count = out->capacity = (size_t)sizes[0];
    out->values = sizes[1];
    return sizes[0] ? rf_run_recv(run, out->list, out->count * sizeof *out->list, peer, "worker")
                    : 0;
}

static int claim(struct rf_run_group *g, enum rf_group_kind kind, int rank,
                 const struct rf_group_runs *has, uint8_t *taken)
{
    struct rf_group_runs *given = g->given[kind] + rank;
    RETURN_IF_ERROR(rf_group_claim(has, taken, given));
    return rank > 0 ? send_runs(g->run, given, rank) : 0;
}

/* The first rank hears what each has, and tells it what to give: what no lower rank has. */
static int divide(struct rf_run_group *g, enum rf_group_kind kind, uint8_t *taken)
{
    if (g->rank > 0) {
        RETURN_IF_ERROR(send_runs(g->run, g->has + kind, 0));
        return receive_runs(g->run, g->given[kind], 0);
    }
    memset(taken, 0, (size_t)g->wide);
    RETURN_IF_ERROR(claim(g, kind, 0, g->has + kind, taken));
    for (int r = 1; r < g->ranks; r++) {
        struct rf_group_runs heard = {0};
        int status = receive_runs(g->run, &heard, r);
        if (status == 0)
            status = claim(g, kind, r, &heard, taken);
        if (status == 0 && kind == RF_GROUP_PARAMS)
            g->held[r] = heard;
        else
            rf_group_runs_free(&heard);
        RETURN_IF_ERROR(status);
    }
    const int64_t all = kind == RF_GROUP_PARAMS ? g->count : g->wide;
    const uint8_t *none = memchr(taken, 0, (size_t)all);
    return none ? rf_fail(RF_ENOTSUP, "no rank of the worker has value %lld of its %s",
                          (long long)(none - taken),
                          kind == RF_GROUP_PARAMS ? "parameters" : "gradients")
                : 0;
}

static int divide_all(struct rf_run_group *g)
{
    uint8_t *taken = g->rank == 0 ? rf_alloc((size_t)g->wide + 1) : NULL;
    int status = g->rank == 0 && !taken ? rf_fail(RF_ENOMEM, "exchange: out of host memory") : 0;
    status = rf_run_agree_status(g->run, status, "worker");
    for (int kind = 0; kind < RF_GROUP_KINDS && status == 0; kind++)
        status = divide(g, (enum rf_group_kind)kind, taken);
    rf_free(taken);
    return status;
}

/* This rank's values of any kind, and those of another rank, or that it gives. */
static int make_room(struct rf_run_group *g)
{
    int64_t own = 0, stage = 0;
    for (int kind = 0; kind < RF_GROUP_KINDS; kind++) {
        own = g->has[kind].values > own ? g->has[kind].values : own;
        for (int r = g->rank ? 0 : 1; r < (g->rank ? 1 : g->ranks); r++) {
            const int64_t n = g->given[kind][r].values;
            stage = n > stage ? n : stage;
        }
    }
    for (int r = 1; r < g->ranks && g->rank == 0; r++)
        stage = g->held[r].values > stage ? g->held[r].values : stage;
    g->own = rf_alloc((size_t)own * sizeof(float) + 1);
    g->stage = rf_alloc((size_t)stage * sizeof(float) + 1);
    return g->own && g->stage ? 0 : rf_fail(RF_ENOMEM, "exchange: out of host memory");
}

static int find_own(struct rf_run_group *g)
{
    const struct rf_plan *plan = g->run->plan;
    const size_t ranks = g->rank ? 1 : (size_t)g->ranks;
    int64_t first, count;
    g->count = g->wide = rf_plan_trained_all(plan);
    for (int k = 0; rf_plan_trained_use(plan, k, &first, &count) == 0; k++)
        g->wide += count;
    RETURN_IF_ERROR(rf_run_rounds_params(g->run, &g->params));
    g->held = rf_alloc(ranks * sizeof *g->held);
    for (int kind = 0; kind < RF_GROUP_KINDS; kind++) {
        RETURN_IF_ERROR(rf_group_runs_of(plan, (enum rf_group_kind)kind, g->has + kind));
        g->given[kind] = rf_alloc(ranks * sizeof *g->given[kind]);
        if (!g->held || !g->given[kind])
            return rf_fail(RF_ENOMEM, "exchange: out of host memory");
    }
    g->plain = g->ranks == 1;
    for (int kind = 0; kind < RF_GROUP_KINDS; kind++)
        g->plain = g->plain && g->has[kind].count == 1 && g->has[kind].list->all == 0;
    return 0;
}

int rf_run_group_open(struct rf_run *run, struct rf_run_group **out)
{
    if (!run || !out)
        return rf_fail(RF_EINVAL, "a worker needs a run, and room");
    struct rf_run_group *g = rf_alloc(sizeof *g);
    int status = g ? 0 : rf_fail(RF_ENOMEM, "exchange: out of host memory");
    if (g) {
        *g = (struct rf_run_group){.run = run, .ranks = rf_run_ranks(run)};
        g->rank = run->comm ? rf_comm_rank(run->comm) : 0;
        status = find_own(g);
    }
    status = rf_run_agree_status(run, status, "worker");
    if (status == 0 && !g->plain)
        status = divide_all(g);
    if (status == 0 && !g->plain)
        status = rf_run_agree_status(run, make_room(g), "worker");
    if (status < 0)
        rf_run_group_close(g);
    else
        *out = g;
    return status;
}

void rf_run_group_close(struct rf_run_group *g)
{
    if (!g)
        return;
    for (int r = 0; r < (g->rank ? 1 : g->ranks); r++) {
        if (g->held)
            rf_group_runs_free(g->held + r);
        for (int kind = 0; kind < RF_GROUP_KINDS; kind++)
            if (g->given[kind])
                rf_group_runs_free(g->given[kind] + r);
    }
    for (int kind = 0; kind < RF_GROUP_KINDS; kind++) {
        rf_group_runs_free(g->has + kind);
        rf_free(g->given[kind]);
    }
    rf_free(g->held);
    rf_free(g->own);
    rf_free(g->stage);
    rf_run_rounds_params_free(&g->params);
    rf_free(g);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* Values of one order as those of the other, one run after the other in `packed`. */
static void pack(const struct rf_group_runs *runs, bool of_all, const float *from, float *packed)
{
    for (size_t k = 0; k < runs->count; packed += runs->list[k++].count)
        memcpy(packed, from + (of_all ? runs->list[k].all : runs->list[k].mine),
               (size_t)runs->list[k].count * sizeof *packed);
}

static void unpack(const struct rf_group_runs *runs, const float *packed, float *all)
{
    for (size_t k = 0; k < runs->count; packed += runs->list[k++].count)
        memcpy(all + runs->list[k].all, packed, (size_t)runs->list[k].count * sizeof *packed);
}

static int collect(struct rf_run_group *g, enum rf_group_kind kind, const float *mine, float *all)
{
    const struct rf_group_runs *given = g->given[kind];
    const size_t bytes = (size_t)given->values * sizeof(float);
    if (g->rank > 0) {
        pack(given, false, mine, g->stage);
        g->sent_bytes += bytes;
        return bytes ? rf_run_send(g->run, g->stage, bytes, 0, "worker") : 0;
    }
    for (size_t k = 0; k < given->count; k++)
        memcpy(all + given->list[k].all, mine + given->list[k].mine,
               (size_t)given->list[k].count * sizeof *all);
    for (int r = 1; r < g->ranks; r++) {
        if (given[r].values == 0)
            continue;
        RETURN_IF_ERROR(
            rf_run_recv(g->run, g->stage, (size_t)given[r].values * sizeof(float), r, "worker"));
        unpack(given + r, g->stage, all);
    }
    return 0;
}

uint64_t rf_run_group_sent_bytes(const struct rf_run_group *g)
{
    return g->sent_bytes;
}

int rf_run_group_collect(struct rf_run_group *g, const float *mine, float *all)
{
    if (!g || !mine || (g->rank == 0 && !all))
        return rf_fail(RF_EINVAL, "collect: a worker, values and room are needed");
    if (g->plain) {
        memmove(all, mine, (size_t)g->count * sizeof *all);
        return 0;
    }
    return collect(g, RF_GROUP_PARAMS, mine, all);
}

int rf_run_group_deal(struct rf_run_group *g, const float *all, float *mine)
{
    if (!g || !mine || (g->rank == 0 && !all))
        return rf_fail(RF_EINVAL, "deal: a worker, values and room are needed");
    const struct rf_group_runs *own = g->has + RF_GROUP_PARAMS;
    if (g->rank > 0)
        return own->values
                   ? rf_run_recv(g->run, mine, (size_t)own->values * sizeof *mine, 0, "worker")
                   : 0;
    for (int r = 1; r < g->ranks; r++) {
        if (g->held[r].values == 0)
            continue;
        const size_t bytes = (size_t)g->held[r].values * sizeof(float);
        pack(g->held + r, true, all, g->stage);
        g->sent_bytes += bytes;
        RETURN_IF_ERROR(rf_run_send(g->run, g->stage, bytes, r, "worker"));
    }
    if (g->plain)
        memmove(mine, all, (size_t)g->count * sizeof *mine);
    else
        pack(own, true, all, mine);
    return 0;
}

/* ---- the first rank, and those that attend it ------------------------------------------------ */

static int tell(struct rf_run_group *g, int32_t *command, void *data, size_t bytes)
{
    RETURN_IF_ERROR(rf_run_await(g->run, command, sizeof *command, FOREVER_S, "worker"));
    return *command == DONE && bytes ? rf_run_broadcast(g->run, data, bytes, 0, "worker") : 0;
}

/* What one command asks of each rank. all: on the first one. */
static int obey(struct rf_run_group *g, int32_t command, float *all)
{
    const struct rf_rounds_params *p = &g->params;
    if (command == WRITE) {
        RETURN_IF_ERROR(rf_run_group_deal(g, all, g->own));
        return p->write(p->user, 0, p->count, g->own);
    }
    if (command == GRADS)
        RETURN_IF_ERROR(rf_group_read_grads(g->run, g->own));
    else
        RETURN_IF_ERROR(p->read(p->user, 0, p->count, g->own));
    return collect(g, command == GRADS ? RF_GROUP_GRADS : RF_GROUP_PARAMS, g->own, all);
}

static int all_obey(struct rf_run_group *g, enum command command, float *all)
{
    int32_t word = (int32_t)command;
    RETURN_IF_ERROR(tell(g, &word, NULL, 0));
    return obey(g, word, all);
}

static int check_first(const struct rf_run_group *g, int64_t first, int64_t count)
{
    return g->rank == 0 && first == 0 && count == g->count
               ? 0
               : rf_fail(RF_EINVAL, "the first rank of a worker reads and writes all parameters "
                                    "at once, and the others attend it");
}

static int read_all(void *user, int64_t first, int64_t count, float *to)
{
    struct rf_run_group *g = user;
    RETURN_IF_ERROR(check_first(g, first, count));
    return g->plain ? g->params.read(g->params.user, first, count, to) : all_obey(g, READ, to);
}

static int write_all(void *user, int64_t first, int64_t count, const float *from)
{
    struct rf_run_group *g = user;
    RETURN_IF_ERROR(check_first(g, first, count));
    return g->plain ? g->params.write(g->params.user, first, count, from)
                    : all_obey(g, WRITE, (float *)from);
}

struct rf_rounds_params rf_run_group_params(struct rf_run_group *g)
{
    return (struct rf_rounds_params){g->count, read_all, write_all, g, NULL};
}

int rf_run_group_grads(struct rf_run_group *g, float *to)
{
    if (!g || !to)
        return rf_fail(RF_EINVAL, "the gradients of a worker need the worker, and room");
    RETURN_IF_ERROR(rf_run_check_idle(g->run, "read gradients"));
    if (rf_plan_in_backward(g->run->plan))
        return rf_fail(RF_ENOTSUP, "gradients are used in the backward pass and dropped: read them "
                                   "without update_in_backward");
    RETURN_IF_ERROR(check_first(g, 0, g->count));
    return g->plain ? rf_group_read_grads(g->run, to) : all_obey(g, GRADS, to);
}

int rf_run_group_attend(struct rf_run_group *g, void *data, size_t bytes)
{
    int32_t command = DONE;
    if (!g || (bytes && !data))
        return rf_fail(RF_EINVAL, "attend: a worker, and room for its data are needed");
    do {
        RETURN_IF_ERROR(tell(g, &command, data, bytes));
        if (command != DONE)
            RETURN_IF_ERROR(obey(g, command, NULL));
    } while (command != DONE);
    return 0;
}
