/* SPDX-License-Identifier: MIT
 *
 * The sum of masked updates without their masks: shares of `threshold` members give the seeds of
 * those whose updates are in it, and the secret keys of those who have shared, but not sent one.
 */
#include <sodium.h>

#include "base/base.h"
#include "secure_round.h"
#include "shamir.h"

/* A mask that is to be added or subtracted. */
struct removal {
    uint8_t seed[FEDERATED_KEY_BYTES];
    int sign;
};

struct removals {
    struct removal *all;
    int64_t count;
};

static int wrong_shares(const struct secure_round *s, int m)
{
    return rf_fail(RF_ECORRUPT, "the shares for client %s do not make its secret: a client lies",
                   (const char *)s->peers[m]);
}

static const uint8_t *mask_key(const struct secure_round *s, int m)
{
    return s->peers[m] + FEDERATED_NAME_BYTES + FEDERATED_KEY_BYTES;
}

/* The member's own mask. */
static int remove_own(const struct secure_round *s, int m, const uint8_t *seed,
                      struct removals *out)
{
    uint8_t hash[32];
    struct removal *removal = out->all + out->count++;
    federated_commit(seed, hash);
    memcpy(removal->seed, seed, sizeof removal->seed);
    removal->sign = -1;
    return memcmp(hash, s->hashes[m], sizeof hash) == 0 ? RF_OK : wrong_shares(s, m);
}

/* The masks that the others share with one that has dropped out. */
static int remove_pairs(const struct rf_coordinator *c, int m, const uint8_t *secret,
                        struct removals *out)
{
    const struct secure_round *s = c->secure;
    uint8_t public_key[FEDERATED_KEY_BYTES];
    crypto_scalarmult_base(public_key, secret);
    if (memcmp(public_key, mask_key(s, m), sizeof public_key) != 0)
        return wrong_shares(s, m);
    for (int k = 0; k < s->count; k++) {
        if (!federated_has(s->uploaded, k))
            continue;
        struct removal *removal = out->all + out->count++;
        removal->sign = k < m ? -1 : 1;
        if (!federated_agree('M', c->run, c->round, secret, mask_key(s, k),
                             mask_key(s, k < m ? k : m), mask_key(s, k < m ? m : k), removal->seed))
            return wrong_shares(s, m);
    }
    return RF_OK;
}

static int find_removals(const struct rf_coordinator *c, struct removals *out)
{
    const struct secure_round *s = c->secure;
    uint8_t holders[FEDERATED_MEMBERS], weights[FEDERATED_MEMBERS], secret[FEDERATED_KEY_BYTES];
    const uint8_t *shares[FEDERATED_MEMBERS];
    int have = 0, place = 0, rc = RF_OK;
    for (int m = 0; m < s->count && have < s->threshold; m++)
        if (federated_has(s->revealed, m))
            holders[have++] = (uint8_t)m;
    federated_share_weights(holders, have, weights);
    for (int m = 0; m < s->count && rc == RF_OK; m++) {
        if (!federated_has(s->shared, m))
            continue;
        for (int h = 0; h < have; h++)
            shares[h] = s->reveals[holders[h] * c->opts.client_count + place];
        federated_unshare(shares, weights, have, secret);
        rc = federated_has(s->uploaded, m) ? remove_own(s, m, secret, out)
                                           : remove_pairs(c, m, secret, out);
        place++;
    }
    sodium_memzero(secret, sizeof secret);
    return rc;
}

/* Values `first` to first + n - 1 of the sum, in s->sum. */
static void sum_piece(struct rf_coordinator *c, const struct removals *removals, int64_t first,
                      int64_t n)
{
    struct secure_round *s = c->secure;
    memset(s->sum, 0, (size_t)n * sizeof *s->sum);
    for (int m = 0; m < s->count; m++) {
        const uint64_t *masked = c->clients[s->clients[m]].masked;
        for (int64_t i = 0; federated_has(s->uploaded, m) && i < n; i++)
            s->sum[i] += masked[first + i];
    }
    for (int64_t r = 0; r < removals->count; r++)
        federated_mask(removals->all[r].seed, removals->all[r].sign, first, n, s->stream, s->sum);
}

static int average(struct rf_coordinator *c, const struct removals *removals)
{
    struct secure_round *s = c->secure;
    const int64_t last = c->count / 8 * 8; /* the weight is behind the parameters */
    sum_piece(c, removals, last, c->count - last + 1);
    const int64_t all = (int64_t)s->sum[c->count - last];
    if (all < 0)
        return rf_fail(RF_ECORRUPT, "the sum of the weights is negative: a client lies");
    s->weight = federated_fixed_number((uint64_t)all, c->rule.weighted);
    for (int64_t first = 0, n; all > 0 && first < c->count; first += n) {
        n = c->count - first < SECURE_PIECE ? c->count - first : SECURE_PIECE;
        sum_piece(c, removals, first, n);
        for (int64_t i = 0; i < n; i++)
            c->mean[first + i] = (float)((double)(int64_t)s->sum[i] / (double)all);
    }
    return RF_OK;
}

int federated_unmask(struct rf_coordinator *c)
{
    const struct secure_round *s = c->secure;
    const int64_t uploads = federated_members(s->uploaded),
                  lost = federated_members(s->shared) - uploads;
    const size_t bytes = (size_t)(uploads * (1 + lost)) * sizeof(struct removal);
    struct removals removals = {.all = rf_alloc(bytes)};
    if (!removals.all)
        return rf_fail(RF_ENOMEM, "out of memory to remove the masks of %lld updates",
                       (long long)uploads);
    int rc = find_removals(c, &removals);
    if (rc == RF_OK)
        rc = average(c, &removals);
    sodium_memzero(removals.all, bytes);
    rf_free(removals.all);
    return rc;
}
