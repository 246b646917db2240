/* SPDX-License-Identifier: MIT
 *
 * Measures, when a job starts, whether messages from private memory are faster read in the memory
 * of the sender's process or through slots. The ranks of a host send real messages around a ring,
 * because copies by one rank alone do not show what slots cost: their lines are in the cache of
 * another core, from which they come quickly or slowly. Called by shm_open.c.
 */
#include <sched.h>

#include "base/base.h"
#include "shm.h"

enum { ROUNDS = 16, FEW_ROUNDS = 6, SPINS = 256 }; /* few: of ranks that outnumber the cores */
static const double TRIAL_TIMEOUT_S = 60, ENDED_TIMEOUT_S = 0.5;

struct trial {
    struct rf_shm *h;
    const struct rf_control *control;
    unsigned char *out, *in; /* private memory */
    uint64_t deadline;
};

static int rank_at(const struct rf_shm *h, int distance)
{
    return h->ranks[(h->index_of[h->transport.rank] + distance + h->count) % h->count];
}

/* A rank that has died sends nothing; the control link knows. */
static int check_clock(struct trial *trial)
{
    const uint64_t soon = rf_after_s(ENDED_TIMEOUT_S);
    if (__atomic_load_n(&trial->control->pending, __ATOMIC_ACQUIRE) && trial->deadline > soon)
        trial->deadline = soon;
    return rf_now_ns() < trial->deadline
               ? 0
               : rf_fail(RF_ETIMEOUT, "shm: no message came from a rank of this host");
}

static int wait_for(struct trial *trial, int messages)
{
    struct rf_transport *t = &trial->h->transport;
    struct rf_completion done[2];
    for (int turn = 0; messages > 0; turn++) {
        const int found = t->ops->poll(t, done, 2);
        if (found < 0)
            return found;
        for (int i = 0; i < found; i++)
            if (done[i].status < 0)
                return done[i].status;
        messages -= found;
        if (found > 0)
            turn = 0;
        /* Ranks that share a core must leave it, or they would measure the system's scheduler. */
        if (turn % SPINS == SPINS - 1 && t->ops->idle(t))
            sched_yield();
        RETURN_IF_ERROR(check_clock(trial));
    }
    return 0;
}

/* One message to the next rank and one from the rank before, as calls send them: from memory that
 * has just been written. */
static int exchange(struct trial *trial, bool reads, double *best_s)
{
    struct rf_shm *h = trial->h;
    struct rf_transport *t = &h->transport;
    struct rf_transport_context contexts[2];
    memset(trial->out, reads, RF_SHM_SLOT);
    h->reads = reads;
    const uint64_t start = rf_now_ns();
    RETURN_IF_ERROR(t->ops->post_recv(t, rank_at(h, -1), 0, trial->in, RF_SHM_SLOT, &contexts[0]));
    RETURN_IF_ERROR(
        t->ops->post_send(t, rank_at(h, 1), 0, 0, trial->out, RF_SHM_SLOT, &contexts[1]));
    RETURN_IF_ERROR(wait_for(trial, 2));
    const double seconds = (double)(rf_now_ns() - start) * 1e-9;
    *best_s = seconds < *best_s ? seconds : *best_s;
    return 0;
}

static int measure(struct trial *trial, struct rf_shm_trial *out)
{
    const int rounds = trial->h->transport.yield ? FEW_ROUNDS : ROUNDS;
    out->read_s = out->slots_s = TRIAL_TIMEOUT_S;
    for (int round = 0; round < rounds; round++) {
        RETURN_IF_ERROR(exchange(trial, false, &out->slots_s));
        RETURN_IF_ERROR(exchange(trial, true, &out->read_s));
    }
    return 0;
}

void rf_shm_measure_reads(struct rf_shm *h, const struct rf_control *control, void *memory,
                          struct rf_shm_trial *out)
{
    struct trial trial = {.h = h,
                          .control = control,
                          .out = memory,
                          .in = (unsigned char *)memory + RF_SHM_SLOT,
                          .deadline = rf_after_s(TRIAL_TIMEOUT_S)};
    out->status = measure(&trial, out);
    h->reads = false;
    h->transport.sent_bytes = h->transport.sent_messages = 0;
}
