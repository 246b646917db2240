/* SPDX-License-Identifier: MIT
 *
 * Messages that have come are checked here before anything in them is used.
 */
#include "message.h"

#include <math.h>

static const char *const names[RF_STORE_MESSAGES] = {
    [RF_STORE_PUSH] = "push",     [RF_STORE_PULL] = "pull",     [RF_STORE_STATS] = "stats",
    [RF_STORE_SAVE] = "save",     [RF_STORE_STATE] = "state",   [RF_STORE_REST] = "rest",
    [RF_STORE_BYE] = "bye",       [RF_STORE_VALUES] = "values", [RF_STORE_WAIT] = "wait",
    [RF_STORE_REPORT] = "report", [RF_STORE_DONE] = "done",     [RF_STORE_REFUSED] = "refused",
};

/* Which fields a kind has; those that it lacks are 0. */
static const struct {
    bool pieces, values, version, update, status, refuses; /* status: below 0 if it refuses */
} has[RF_STORE_MESSAGES] = {
    [RF_STORE_PUSH] = {.pieces = true, .values = true, .update = true},
    [RF_STORE_PULL] = {.pieces = true, .values = true, .version = true},
    [RF_STORE_STATE] = {.status = true},
    [RF_STORE_REST] = {.status = true},
    [RF_STORE_VALUES] = {.values = true, .version = true, .status = true},
    [RF_STORE_REFUSED] = {.status = true, .refuses = true},
};

static int check_fields(const struct rf_store_head *h, int64_t count)
{
    const char *name = names[h->kind];
    const uint64_t most = (uint64_t)count;
    if ((!has[h->kind].pieces && h->pieces) || (!has[h->kind].values && h->values) ||
        (!has[h->kind].version && h->version) || (!has[h->kind].status && h->status) ||
        (!has[h->kind].update && (h->lr != 0 || h->share != 0)))
        return rf_fail(RF_ECORRUPT, "a message \"%s\" of a store has fields of another kind", name);
    if (h->values > most || h->pieces > h->values ||
        (has[h->kind].pieces && (h->pieces == 0) != (h->values == 0)))
        return rf_fail(RF_ECORRUPT,
                       "a message \"%s\" of a store has %llu pieces of %llu values, of a shard of "
                       "%lld",
                       name, (unsigned long long)h->pieces, (unsigned long long)h->values,
                       (long long)count);
    if (h->version < 0)
        return rf_fail(RF_ECORRUPT, "a message \"%s\" of a store has version %lld", name,
                       (long long)h->version);
    if (has[h->kind].update && (!isfinite(h->lr) || !isfinite(h->share) || !(h->share > 0)))
        return rf_fail(RF_ECORRUPT, "a push to a store has a rate of %g and a share of %g",
                       (double)h->lr, h->share);
    if (has[h->kind].status && (h->status < 0) != has[h->kind].refuses)
        return rf_fail(RF_ECORRUPT, "a message \"%s\" of a store has status %d", name, h->status);
    return RF_OK;
}

int rf_store_head_check(const struct rf_store_head *h, enum rf_store_message from,
                        enum rf_store_message to, int64_t number, int64_t count)
{
    if (h->magic != RF_STORE_MAGIC || h->reserved || h->unused || h->kind < from || h->kind > to)
        return rf_fail(RF_ECORRUPT, "a message of a store begins with %08x, kind %u: it is none",
                       h->magic, h->kind);
    if (h->number != number)
        return rf_fail(RF_ECORRUPT, "a message \"%s\" of a store has number %lld, and %lld was due",
                       names[h->kind], (long long)h->number, (long long)number);
    return check_fields(h, count);
}

int rf_store_pieces_check(const uint64_t *pieces, uint64_t number, uint64_t values, int64_t count)
{
    int64_t end = 0;
    uint64_t sum = 0;
    for (uint64_t k = 0; k < number; k++) {
        const int64_t first = rf_store_first(pieces[k]), length = rf_store_length(pieces[k]);
        if (first < end || length == 0 || length > count || first > count - length)
            return rf_fail(RF_ECORRUPT,
                           "piece %llu of a request to a store is %lld values from %lld on, behind "
                           "%lld, of a shard of %lld",
                           (unsigned long long)k, (long long)length, (long long)first,
                           (long long)end, (long long)count);
        end = first + length;
        sum += (uint64_t)length;
    }
    return sum == values ? RF_OK
                         : rf_fail(RF_ECORRUPT,
                                   "the pieces of a request to a store have %llu "
                                   "values, and it says %llu",
                                   (unsigned long long)sum, (unsigned long long)values);
}
