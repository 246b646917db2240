/* SPDX-License-Identifier: MIT
 *
 * Measures, when a job starts, the fastest way from private memory to another rank of the host:
 * through slots that are written into the caches, through slots that are written past them, or by
 * reading the memory of the sender's process. The fastest way depends on the placement of the
 * cores; the others may take several times as long (shm_send.c, "slots"). Called by shm_open.c.
 *
 * Every rank sends to the next one around a ring. Writing and reading are timed, but not waiting,
 * so it does not matter whether ranks share cores.
 */
#include <sched.h>

#include "base/base.h"
#include "shm.h"

enum {
    SPINS = 256,
    LAP = RF_SHM_UNITS * RF_SHM_UNIT / RF_SHM_SLOT,
    ROUNDS = 3 * LAP,
    FEW_ROUNDS = LAP + LAP / 2 /* for ranks that outnumber the cores */
};
static const double TRIAL_TIMEOUT_S = 60, ENDED_TIMEOUT_S = 0.5;

/* Long messages pass through slots piece by piece, the sender writes while the receiver reads, and
 * a sum adds directly from a slot. A read brings the whole message, which is added afterwards. So
 * reads must be faster by this factor. If two ranks send to each other, both write and read slots,
 * so the times compare directly, except for the additional cost of pieces: with equal times, an
 * exchange by reads took 0.72 to 0.83 of the time (shm_receive.c, is_worth_reading). */
static const double READ_GAIN = 1.6, EXCHANGE_GAIN = 0.9;

/* Stores past the caches use memory bandwidth, which all ranks share. */
static const double STREAM_GAIN = 1.1;

enum way { CACHED, STREAMED, READ };

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

/* A dead rank sends nothing; the control link detects the death. */
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
        /* Ranks that share a core must separate, or every message waits for the scheduler. */
        if (turn % SPINS == SPINS - 1 && t->ops->idle(t))
            sched_yield();
        RETURN_IF_ERROR(check_clock(trial));
    }
    return 0;
}

/* Sends a word to the rank at `distance`, and receives one from the rank on the other side. */
static int exchange_words(struct trial *trial, int distance, uint64_t word, uint64_t *other)
{
    struct rf_transport *t = &trial->h->transport;
    struct rf_transport_context contexts[2];
    RETURN_IF_ERROR(t->ops->post_recv(t, rank_at(trial->h, -distance), (uint64_t)(distance > 0),
                                      other, sizeof(*other), &contexts[0]));
    RETURN_IF_ERROR(t->ops->post_send(t, rank_at(trial->h, distance), (uint64_t)(distance > 0), 0,
                                      &word, sizeof(word), &contexts[1]));
    return wait_for(trial, 2);
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(rf_now_ns() - start_ns) * 1e-9;
}

/* Measures the cost of a message, from memory that has just been written, for the sender and the
 * receiver. */
static int pass(struct trial *trial, enum way way, int round, double *seconds)
{
    struct rf_shm *h = trial->h;
    const int before = rank_at(h, -1);
    struct rf_shm_peer *next = rf_shm_peer_of(h, rank_at(h, 1));
    const unsigned place = next->goes_round ? (unsigned)(round % LAP) : 0;
    const unsigned unit = place * (RF_SHM_SLOT / RF_SHM_UNIT);
    uint64_t word = 0;
    memset(trial->out, round, RF_SHM_SLOT);
    uint64_t start = rf_now_ns();
    if (way != READ)
        rf_shm_write_slot(next, unit, trial->out, RF_SHM_SLOT, way == STREAMED);
    *seconds = seconds_since(start);
    RETURN_IF_ERROR(exchange_words(trial, 1, (uintptr_t)trial->out, &word));
    start = rf_now_ns();
    int rc = 0;
    if (way == READ)
        rc = rf_shm_read(h, before, trial->in, (const void *)(uintptr_t)word, RF_SHM_SLOT);
    else
        memcpy(trial->in, rf_shm_slot(rf_shm_peer_of(h, before), unit, RF_SHM_SLOT), RF_SHM_SLOT);
    *seconds += rc == RF_EAGAIN ? TRIAL_TIMEOUT_S : seconds_since(start);
    if (rc < 0 && rc != RF_EAGAIN)
        return rc;
    return exchange_words(trial, -1, 0, &word); /* the slot may be reused */
}

/* The best time, once all slots have been used. */
static int measure(struct trial *trial, enum way way, double *best_s)
{
    const int rounds = trial->h->transport.yield ? FEW_ROUNDS : ROUNDS;
    *best_s = TRIAL_TIMEOUT_S;
    for (int round = 0; round < rounds; round++) {
        double seconds = 0;
        RETURN_IF_ERROR(pass(trial, way, round, &seconds));
        if (round >= LAP && seconds < *best_s)
            *best_s = seconds;
    }
    return 0;
}

static int measure_all(struct trial *trial, bool reads, struct rf_shm_trial *out)
{
    RETURN_IF_ERROR(measure(trial, CACHED, &out->cached_s));
    RETURN_IF_ERROR(measure(trial, STREAMED, &out->streamed_s));
    return reads ? measure(trial, READ, &out->read_s) : 0;
}

void rf_shm_measure(struct rf_shm *h, const struct rf_control *control, bool reads, void *memory,
                    struct rf_shm_trial *out)
{
    struct trial trial = {.h = h,
                          .control = control,
                          .out = memory,
                          .in = (unsigned char *)memory + RF_SHM_SLOT,
                          .deadline = rf_after_s(TRIAL_TIMEOUT_S)};
    out->status = measure_all(&trial, reads, out);
    h->transport.sent_bytes = h->transport.sent_messages = 0;
}

/* ---- the choice -------------------------------------------------------------------------------
 */

static void keep_slowest(double *slowest, double seconds)
{
    *slowest = seconds > *slowest ? seconds : *slowest;
}

/* The slowest rank's trial: ranks wait for it. */
static struct rf_shm_trial slowest_of(const struct rf_shm *h, const struct rf_shm_trial *trials)
{
    struct rf_shm_trial all = {.permitted = rf_shm_reads_are_permitted(h, trials)};
    for (int i = 0; i < h->count; i++) {
        const struct rf_shm_trial *trial = &trials[h->ranks[i]];
        all.forced = trial->forced > all.forced ? trial->forced : all.forced;
        keep_slowest(&all.read_s, trial->read_s);
        keep_slowest(&all.cached_s, trial->cached_s);
        keep_slowest(&all.streamed_s, trial->streamed_s);
    }
    return all;
}

static double speed(double seconds)
{
    return seconds > 0 ? RF_SHM_SLOT / seconds / 1e9 : 0;
}

static void describe(struct rf_shm *h, const struct rf_shm_trial *all)
{
    const char *way = h->reads == RF_SHM_READS_ALL ? "peer reads"
                      : h->transport.streams       ? "slots, streamed"
                                                   : "slots, cached";
    const char *also = h->reads == RF_SHM_READS_EXCHANGES ? "; exchanges by peer reads" : "";
    char reads[64] = "not every rank may read the memory of all others";
    if (all->permitted)
        snprintf(reads, sizeof(reads), "peer reads %.1f", speed(all->read_s));
    if (h->count > 1)
        snprintf(h->own_memory, sizeof(h->own_memory),
                 "%s%s (GB/s: slots, cached %.1f; slots, streamed %.1f; %s)", way, also,
                 speed(all->cached_s), speed(all->streamed_s), reads);
    else
        snprintf(h->own_memory, sizeof(h->own_memory), "%s (this host has one rank)", way);
}

static enum rf_shm_reads reads_of(const struct rf_shm_trial *all, double slots_s)
{
    if (!all->permitted)
        return RF_SHM_READS_NONE;
    if (all->forced != RF_SHM_READS_NONE)
        return all->forced;
    if (READ_GAIN * all->read_s < slots_s)
        return RF_SHM_READS_ALL;
    if (EXCHANGE_GAIN * all->read_s < slots_s)
        return RF_SHM_READS_EXCHANGES;
    return RF_SHM_READS_NONE;
}

void rf_shm_choose(struct rf_shm *h, const struct rf_shm_trial *trials)
{
    const struct rf_shm_trial all = slowest_of(h, trials);
    const bool streamed = STREAM_GAIN * all.streamed_s < all.cached_s;
    const double slots_s = streamed ? all.streamed_s : all.cached_s;
    const char *writes = rf_env("RF_SLOT_WRITES"); /* this rank's: does not decide for others */
    h->transport.streams =
        strcmp(writes, "streamed") == 0 || (strcmp(writes, "cached") != 0 && streamed);
    h->reads = reads_of(&all, slots_s);
    for (int i = 0; h->reads == RF_SHM_READS_NONE && i < h->count; i++)
        h->peers[i].process = 0;
    describe(h, &all);
    h->transport.own_memory = h->own_memory;
    h->transport.read_bytes = h->reads == RF_SHM_READS_ALL ? RF_SHM_EAGER_PRIVATE + 1 : 0;
    rf_log("transport", 2, "shm: own memory: %s", h->own_memory);
}
