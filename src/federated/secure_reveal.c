/* SPDX-License-Identifier: MIT
 *
 * The end of a client's part of a secure aggregation: it tells a coordinator either its share of a
 * member's seed or that of the member's secret key, and never both; and, with a list of peers, only
 * after `threshold` members have signed the same set.
 */
#include <ringforge/ringforge.h>
#include <sodium.h>

#include "base/base.h"
#include "secure.h"

enum { KEY = FEDERATED_KEY_BYTES, SIGNATURE = FEDERATED_SIGNATURE_BYTES };

void federated_secure_mask(const struct secure_client *s, int64_t first, int64_t n,
                           uint64_t *stream, uint64_t *values)
{
    federated_mask(s->seed, 1, first, n, stream, values);
    for (int k = 0; k < s->count; k++)
        if (k != s->own && federated_has(s->shared, k))
            federated_mask(s->masks[k], s->own < k ? 1 : -1, first, n, stream, values);
}

int federated_secure_unmask(struct secure_client *s, const struct federated_message *m,
                            uint8_t *body, size_t *bytes)
{
    if (s->step >= SECURE_CONFIRMED && m->run == s->run && m->round == s->round)
        return rf_fail(
            RF_EAUTH,
            "the coordinator asks for shares of round %lld once more: both shares of one "
            "client would tell its update",
            (long long)m->round);
    RETURN_IF_ERROR(federated_secure_expect(s, m, SECURE_MASKED));
    RETURN_IF_ERROR(federated_secure_check_set(s, m->body, s->shared));
    if (!federated_has(m->body, s->own))
        return rf_fail(RF_EAUTH,
                       "the coordinator asks client %s for shares as if its update had "
                       "not arrived",
                       s->name);
    memcpy(s->uploaded, m->body, sizeof s->uploaded);
    federated_sign_set(s, body);
    *bytes = SIGNATURE;
    s->step = SECURE_CONFIRMED;
    return RF_OK;
}

/* How many members have signed this client's set. */
static int count_signed(const struct secure_client *s, const struct federated_message *m)
{
    const uint8_t *signature = m->body + FEDERATED_SET_BYTES;
    int found = 0;
    for (int k = 0; k < s->count; k++) {
        if (!federated_has(m->body, k))
            continue;
        for (int p = 0; p < s->peer_count; p++)
            if (strcmp(s->peers[p].name, s->names[k]) == 0)
                found += federated_signed_set(s, s->peers[p].key, signature);
        signature += SIGNATURE;
    }
    return found;
}

int federated_secure_agreed(struct secure_client *s, const struct federated_message *m,
                            uint8_t *body, size_t *bytes)
{
    uint8_t *out = body;
    RETURN_IF_ERROR(federated_secure_expect(s, m, SECURE_CONFIRMED));
    RETURN_IF_ERROR(federated_secure_check_set(s, m->body, s->uploaded));
    if (s->peers && count_signed(s, m) < s->threshold)
        return rf_fail(RF_EAUTH,
                       "fewer than %d clients have signed that these are the updates of the sum of "
                       "round %lld: the coordinator tells them different sets",
                       s->threshold, (long long)m->round);
    for (int k = 0; k < s->count; k++)
        if (federated_has(s->shared, k)) {
            memcpy(out, federated_has(s->uploaded, k) ? s->seeds[k] : s->secrets[k], KEY);
            out += KEY;
        }
    *bytes = (size_t)(out - body);
    federated_secure_forget(s);
    s->step = SECURE_REVEALED;
    return RF_OK;
}
