/* SPDX-License-Identifier: MIT
 *
 * Stores in memory that the ranks of a host share: each rank adds to the parameters itself. With
 * RF_STORE_HOGWILD a parameter is four bytes that are changed by compare-and-swap. With
 * RF_STORE_RACY it is eight, which are loaded and stored as one: the value, and the number of
 * additions that it has in it. An addition that another one overwrites is lost together with its
 * count, so the difference of what ranks have added and of the counts is the number of losses.
 */
#include <stdalign.h>

#include "store.h"

/* A rank's own line. */
struct seat {
    alignas(64) uint64_t additions;
    int note;
};

union cell {
    uint64_t bits;
    struct {
        float value;
        uint32_t additions;
    } is;
};

struct rf_store_shared {
    struct rf_store_memory memory;
    struct seat *seats;
    void *cells; /* uint32_t with the bits of the f32 value, or union cell */
};

static bool races(const struct rf_store *store)
{
    return store->opts.rule == RF_STORE_RACY;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void fill(struct rf_store *store)
{
    for (int64_t i = 0; i < store->opts.count; i++) {
        const float value = store->opts.initial[i];
        if (races(store))
            ((union cell *)store->shared->cells)[i].is.value = value;
        else
            ((uint32_t *)store->shared->cells)[i] = bits_of(value);
    }
}

static int open_shared(struct rf_store *store, struct rf_comm *comm)
{
    const size_t seats = (size_t)store->ranks * sizeof(struct seat);
    const size_t each = races(store) ? sizeof(union cell) : sizeof(uint32_t);
    store->shared = rf_alloc(sizeof *store->shared);
    if (!store->shared)
        return rf_fail(RF_ENOMEM, "out of memory for a store");
    store->shared->memory.fd = -1;
    if ((uint64_t)store->opts.count > (SIZE_MAX / 2 - seats) / each)
        return rf_fail(RF_EINVAL, "a store of %lld parameters is larger than memory",
                       (long long)store->opts.count);
    RETURN_IF_ERROR(rf_store_memory_open(comm, seats + (size_t)store->opts.count * each,
                                         &store->shared->memory));
    store->shared->seats = store->shared->memory.base;
    store->shared->cells = (char *)store->shared->memory.base + seats;
    if (store->rank == 0 && store->opts.initial)
        fill(store);
    return rf_barrier(comm, NULL);
}

static void close_shared(struct rf_store *store)
{
    if (!store->shared)
        return;
    rf_store_memory_close(&store->shared->memory);
    rf_free(store->shared);
    store->shared = NULL;
}

/* ---- push and pull --------------------------------------------------------------------------- */

static void add(uint32_t *cell, float change)
{
    uint32_t was = __atomic_load_n(cell, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(cell, &was, bits_of(float_of(was) + change), true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* One load and one store of eight bytes: ordinary instructions, between which others may write. */
static void add_racy(union cell *cell, float change)
{
    union cell now = {.bits = __atomic_load_n(&cell->bits, __ATOMIC_RELAXED)};
    now.is.value += change;
    now.is.additions++;
    __atomic_store_n(&cell->bits, now.bits, __ATOMIC_RELAXED);
}

static int push(struct rf_store *store, const struct rf_store_keys *keys, const float *gradient,
                const struct rf_store_update *update)
{
    struct rf_store_walk walk = {.keys = keys};
    struct rf_store_piece piece;
    const float factor = (float)(1 / (update->share > 0 ? update->share : 1));
    const float lr = rf_option(update->lr, 1);
    uint64_t *additions = &store->shared->seats[store->rank].additions;
    while (rf_store_next(&walk, &piece)) {
        for (int64_t i = 0; i < piece.count; i++) {
            const float change = -(lr * (gradient[i] * factor));
            if (races(store))
                add_racy((union cell *)store->shared->cells + piece.first + i, change);
            else
                add((uint32_t *)store->shared->cells + piece.first + i, change);
        }
        gradient += piece.count;
        __atomic_fetch_add(additions, (uint64_t)piece.count, __ATOMIC_RELAXED);
    }
    return RF_OK;
}

static int pull(struct rf_store *store, const struct rf_store_keys *keys, int64_t least,
                float *values)
{
    if (least != 0)
        return rf_fail(RF_EINVAL, "pull: a store without servers has no versions: least is 0");
    struct rf_store_walk walk = {.keys = keys};
    struct rf_store_piece piece;
    while (rf_store_next(&walk, &piece)) {
        const uint32_t *plain = (const uint32_t *)store->shared->cells + piece.first;
        const union cell *counted = (const union cell *)store->shared->cells + piece.first;
        for (int64_t i = 0; i < piece.count && !races(store); i++)
            values[i] = float_of(__atomic_load_n(plain + i, __ATOMIC_RELAXED));
        for (int64_t i = 0; i < piece.count && races(store); i++) {
            const union cell now = {.bits = __atomic_load_n(&counted[i].bits, __ATOMIC_RELAXED)};
            values[i] = now.is.value;
        }
        values += piece.count;
    }
    for (int r = 0; r < store->ranks; r++) {
        const int note = __atomic_load_n(&store->shared->seats[r].note, __ATOMIC_RELAXED);
        store->stats.note = note > store->stats.note ? note : store->stats.note;
    }
    return RF_OK;
}

static int finish(struct rf_store *store, int note)
{
    __atomic_store_n(&store->shared->seats[store->rank].note, note, __ATOMIC_RELAXED);
    return RF_OK;
}

static int get_stats(struct rf_store *store, struct rf_store_stats *out)
{
    const struct rf_store_shared *shared = store->shared;
    uint64_t kept = 0;
    *out = store->stats;
    for (int r = 0; r < store->ranks; r++)
        out->additions += __atomic_load_n(&shared->seats[r].additions, __ATOMIC_RELAXED);
    if (!races(store))
        return RF_OK;
    for (int64_t i = 0; i < store->opts.count; i++) {
        const union cell *cell = (const union cell *)shared->cells + i;
        const union cell now = {.bits = __atomic_load_n(&cell->bits, __ATOMIC_RELAXED)};
        kept += now.is.additions;
    }
    out->lost = out->additions > kept ? out->additions - kept : 0;
    return RF_OK;
}

static const char *path(const struct rf_store *store)
{
    (void)store;
    return "memory that the ranks share";
}

const struct rf_store_kind rf_store_in_memory = {.open = open_shared,
                                                 .close = close_shared,
                                                 .push = push,
                                                 .pull = pull,
                                                 .finish = finish,
                                                 .get_stats = get_stats,
                                                 .path = path};
