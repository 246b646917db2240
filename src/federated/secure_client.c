/* SPDX-License-Identifier: MIT
 *
 * A client's part of a secure aggregation: what it sends, and what it refuses to. It tells a
 * coordinator either its share of a member's seed or that of the member's secret key, and never
 * both (secure_reveal.c).
 */
#include <ringforge/ringforge.h>
#include <sodium.h>

#include "base/base.h"
#include "secure.h"
#include "shamir.h"

enum { KEY = FEDERATED_KEY_BYTES };
_Static_assert((int)SHAMIR_MOST == (int)FEDERATED_MEMBERS, "a share for each member");

void federated_secure_forget(struct secure_client *s)
{
    sodium_memzero(s->box_secret, sizeof s->box_secret);
    sodium_memzero(s->mask_secret, sizeof s->mask_secret);
    sodium_memzero(s->seed, sizeof s->seed);
    sodium_memzero(s->masks, sizeof s->masks);
    sodium_memzero(s->seeds, sizeof s->seeds);
    sodium_memzero(s->secrets, sizeof s->secrets);
    s->step = SECURE_NONE;
}

int federated_secure_begin(struct secure_client *s, int threshold)
{
    if (s->threshold && threshold != s->threshold)
        return rf_fail(
            RF_EAUTH,
            "the coordinator says a threshold of %d for secure aggregation, and has said "
            "%d before",
            threshold, s->threshold);
    if (threshold < s->least)
        return rf_fail(RF_EAUTH,
                       "the coordinator has a threshold of %d for secure aggregation, and this "
                       "client wants at least %d",
                       threshold, s->least);
    s->threshold = threshold;
    return RF_OK;
}

int federated_secure_expect(const struct secure_client *s, const struct federated_message *m,
                            enum secure_step step)
{
    if (s->step == step && m->run == s->run && m->round == s->round)
        return RF_OK;
    return rf_fail(RF_ECORRUPT, "the coordinator sent \"%s\" out of order",
                   rf_federated_message_get_info(m->kind)->name);
}

/* ---- keys ------------------------------------------------------------------------------------ */

int federated_secure_ready(struct secure_client *s, uint64_t run, int64_t round, uint8_t *body)
{
    if (s->spent_run == run && s->spent_round >= round)
        return rf_fail(RF_EAUTH,
                       "the coordinator asks for round %lld again, whose update has been shared: "
                       "two sums of one round would tell updates",
                       (long long)round);
    federated_secure_forget(s);
    s->run = run;
    s->round = round;
    randombytes_buf(s->box_secret, KEY);
    randombytes_buf(s->mask_secret, KEY);
    randombytes_buf(s->seed, KEY);
    crypto_scalarmult_base(s->box_public, s->box_secret);
    crypto_scalarmult_base(s->mask_public, s->mask_secret);
    memcpy(body, s->box_public, KEY);
    memcpy(body + KEY, s->mask_public, KEY);
    federated_sign(s, run, round, body);
    federated_commit(s->seed, body + FEDERATED_KEYS_BYTES);
    s->step = SECURE_READY;
    return RF_OK;
}

static int check_peer(const struct secure_client *s, const char *name, const uint8_t *keys)
{
    for (int k = 0; k < s->peer_count; k++)
        if (strcmp(s->peers[k].name, name) == 0)
            return federated_signed(name, s->peers[k].key, s->run, s->round, keys)
                       ? RF_OK
                       : rf_fail(RF_EAUTH,
                                 "the coordinator sent keys of client %s that are not signed by "
                                 "the identity in the list of peers",
                                 name);
    return s->peers ? rf_fail(RF_EAUTH,
                              "the coordinator put client %s into a secure aggregation, who is not "
                              "in the list of peers",
                              name)
                    : RF_OK;
}

static int take_peers(struct secure_client *s, const struct federated_message *m)
{
    s->count = (int)(m->body_bytes / FEDERATED_PEER_BYTES);
    s->own = -1;
    crypto_generichash(s->members, sizeof s->members, m->body, m->body_bytes, NULL, 0);
    for (int k = 0; k < s->count; k++) {
        const uint8_t *peer = m->body + (size_t)k * FEDERATED_PEER_BYTES;
        const uint8_t *keys = peer + FEDERATED_NAME_BYTES;
        memcpy(s->names[k], peer, FEDERATED_NAME_BYTES);
        memcpy(s->box_keys[k], keys, KEY);
        memcpy(s->masks[k], keys + KEY, KEY); /* public, until there is the mask's seed */
        RETURN_IF_ERROR(check_peer(s, s->names[k], keys));
        if (strcmp(s->names[k], s->name) == 0)
            s->own = k;
    }
    if (s->own < 0 || memcmp(s->box_keys[s->own], s->box_public, KEY) != 0 ||
        memcmp(s->masks[s->own], s->mask_public, KEY) != 0)
        return rf_fail(RF_EAUTH, "the coordinator sent other keys of client %s than it has",
                       s->name);
    if (s->count < s->threshold || 2 * s->threshold <= s->count)
        return rf_fail(RF_EAUTH,
                       "the threshold %d of secure aggregation is not more than half of the %d "
                       "clients of this round, or more than all",
                       s->threshold, s->count);
    return RF_OK;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* The key of a box has one use. */
static const uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

static int no_key(const struct secure_client *s, int m)
{
    return rf_fail(RF_EAUTH, "the coordinator sent a key of client %s that is none", s->names[m]);
}

static int seal(const struct secure_client *s, int to, const uint8_t *seed, const uint8_t *secret,
                uint8_t box[FEDERATED_BOX_BYTES])
{
    uint8_t key[KEY], both[2 * KEY];
    if (!federated_agree('B', s->run, s->round, s->box_secret, s->box_keys[to], s->box_public,
                         s->box_keys[to], key))
        return no_key(s, to);
    memcpy(both, seed, KEY);
    memcpy(both + KEY, secret, KEY);
    crypto_aead_chacha20poly1305_ietf_encrypt(box, NULL, both, sizeof both, NULL, 0, NULL, nonce,
                                              key);
    sodium_memzero(key, sizeof key);
    sodium_memzero(both, sizeof both);
    return RF_OK;
}

/* The seed of the mask that this client and a member have in common, in place of its key. */
static int agree_on_mask(struct secure_client *s, int m)
{
    uint8_t other[KEY];
    memcpy(other, s->masks[m], KEY);
    return federated_agree('M', s->run, s->round, s->mask_secret, other,
                           m < s->own ? other : s->mask_public, m < s->own ? s->mask_public : other,
                           s->masks[m])
               ? RF_OK
               : no_key(s, m);
}

int federated_secure_peers(struct secure_client *s, const struct federated_message *m,
                           uint8_t *body, size_t *bytes)
{
    uint8_t seeds[FEDERATED_MEMBERS][KEY], secrets[FEDERATED_MEMBERS][KEY];
    uint8_t *box = body + FEDERATED_SET_BYTES;
    RETURN_IF_ERROR(federated_secure_expect(s, m, SECURE_READY));
    RETURN_IF_ERROR(take_peers(s, m));
    federated_share(s->seed, s->threshold, s->count, seeds);
    federated_share(s->mask_secret, s->threshold, s->count, secrets);
    memset(body, 0, FEDERATED_SET_BYTES);
    memcpy(s->seeds[s->own], seeds[s->own], KEY);
    memcpy(s->secrets[s->own], secrets[s->own], KEY);
    int rc = RF_OK;
    for (int k = 0; k < s->count && rc == RF_OK; k++) {
        if (k == s->own)
            continue;
        rc = seal(s, k, seeds[k], secrets[k], box);
        if (rc == RF_OK)
            rc = agree_on_mask(s, k);
        federated_add(body, k);
        box += FEDERATED_BOX_BYTES;
    }
    sodium_memzero(seeds, sizeof seeds);
    sodium_memzero(secrets, sizeof secrets);
    *bytes = (size_t)(box - body);
    s->step = SECURE_SHARED;
    s->spent_run = s->run;
    s->spent_round = s->round;
    return rc;
}

static int unseal(struct secure_client *s, int from, const uint8_t *box)
{
    uint8_t key[KEY], both[2 * KEY];
    if (!federated_agree('B', s->run, s->round, s->box_secret, s->box_keys[from], s->box_keys[from],
                         s->box_public, key))
        return no_key(s, from);
    const int rc = crypto_aead_chacha20poly1305_ietf_decrypt(
        both, NULL, NULL, box, FEDERATED_BOX_BYTES, NULL, 0, nonce, key);
    memcpy(s->seeds[from], both, KEY);
    memcpy(s->secrets[from], both + KEY, KEY);
    sodium_memzero(key, sizeof key);
    sodium_memzero(both, sizeof both);
    return rc == 0 ? RF_OK
                   : rf_fail(RF_EAUTH,
                             "the coordinator sent shares that client %s has not sealed "
                             "for client %s",
                             s->names[from], s->name);
}

int federated_secure_check_set(const struct secure_client *s, const uint8_t *set,
                               const uint8_t *within)
{
    const int members = federated_members(set);
    for (int k = 0; k < 8 * FEDERATED_SET_BYTES; k++)
        if (federated_has(set, k) && (k >= s->count || (within && !federated_has(within, k))))
            return rf_fail(RF_ECORRUPT, "the coordinator names a member that there is not");
    return members >= s->threshold
               ? RF_OK
               : rf_fail(RF_EAUTH,
                         "the coordinator wants a sum of %d clients, and the threshold is %d",
                         members, s->threshold);
}

int federated_secure_shares(struct secure_client *s, const struct federated_message *m)
{
    const uint8_t *box = m->body + FEDERATED_SET_BYTES;
    RETURN_IF_ERROR(federated_secure_expect(s, m, SECURE_SHARED));
    if (federated_has(m->body, s->own))
        return rf_fail(RF_ECORRUPT, "the coordinator sent a client's own shares");
    memcpy(s->shared, m->body, sizeof s->shared);
    federated_add(s->shared, s->own);
    RETURN_IF_ERROR(federated_secure_check_set(s, s->shared, NULL));
    for (int k = 0; k < s->count; k++)
        if (federated_has(m->body, k)) {
            RETURN_IF_ERROR(unseal(s, k, box));
            box += FEDERATED_BOX_BYTES;
        }
    s->step = SECURE_MASKED;
    return RF_OK;
}
