/* SPDX-License-Identifier: MIT
 *
 * Identities of clients: an Ed25519 key pair from a secret that the coordinator does not have, with
 * which a client signs its keys of each secure aggregation.
 */
#include <ringforge/ringforge.h>
#include <sodium.h>

#include "base/base.h"
#include "secure.h"

static void key_pair(const char *secret, uint8_t public_key[32], uint8_t secret_key[64])
{
    static const uint8_t purpose[] = "ringforge client identity";
    uint8_t seed[crypto_sign_SEEDBYTES];
    crypto_generichash(seed, sizeof seed, (const uint8_t *)secret, strlen(secret), purpose,
                       sizeof purpose - 1);
    crypto_sign_seed_keypair(public_key, secret_key, seed);
    sodium_memzero(seed, sizeof seed);
}

int rf_client_identity(const char *secret, char out[65])
{
    uint8_t public_key[32], secret_key[64];
    secret = secret ? secret : rf_env("RF_IDENTITY_KEY");
    if (!secret || !secret[0] || !out)
        return rf_fail(RF_EAUTH, "an identity needs a secret of the client: set RF_IDENTITY_KEY");
    key_pair(secret, public_key, secret_key);
    sodium_bin2hex(out, 65, public_key, sizeof public_key);
    sodium_memzero(secret_key, sizeof secret_key);
    return RF_OK;
}

/* ---- signatures ------------------------------------------------------------------------------ */

enum { SIGNED = 16 + FEDERATED_NAME_BYTES + 2 * FEDERATED_KEY_BYTES };

static void text_of(const char *name, uint64_t run, int64_t round, const uint8_t *keys,
                    uint8_t out[SIGNED])
{
    memset(out, 0, SIGNED);
    memcpy(out, &run, 8);
    memcpy(out + 8, &round, 8);
    memcpy(out + 16, name, strlen(name));
    memcpy(out + 16 + FEDERATED_NAME_BYTES, keys, 2 * FEDERATED_KEY_BYTES);
}

void federated_sign(const struct secure_client *s, uint64_t run, int64_t round, uint8_t *keys)
{
    uint8_t text[SIGNED];
    memset(keys + 2 * FEDERATED_KEY_BYTES, 0, crypto_sign_BYTES);
    if (!s->signs)
        return;
    text_of(s->name, run, round, keys, text);
    crypto_sign_detached(keys + 2 * FEDERATED_KEY_BYTES, NULL, text, sizeof text, s->sign_secret);
}

bool federated_signed(const char *name, const uint8_t *public_key, uint64_t run, int64_t round,
                      const uint8_t *keys)
{
    uint8_t text[SIGNED];
    text_of(name, run, round, keys, text);
    return crypto_sign_verify_detached(keys + 2 * FEDERATED_KEY_BYTES, text, sizeof text,
                                       public_key) == 0;
}

enum { SET_TEXT = 17 + 32 + 2 * FEDERATED_SET_BYTES };

static void text_of_set(const struct secure_client *s, uint8_t out[SET_TEXT])
{
    out[0] = 'S'; /* a text of another length than that of keys */
    memcpy(out + 1, &s->run, 8);
    memcpy(out + 9, &s->round, 8);
    memcpy(out + 17, s->members, 32);
    memcpy(out + 17 + 32, s->shared, FEDERATED_SET_BYTES);
    memcpy(out + 17 + 32 + FEDERATED_SET_BYTES, s->uploaded, FEDERATED_SET_BYTES);
}

void federated_sign_set(const struct secure_client *s, uint8_t signature[FEDERATED_SIGNATURE_BYTES])
{
    uint8_t text[SET_TEXT];
    memset(signature, 0, FEDERATED_SIGNATURE_BYTES);
    text_of_set(s, text);
    if (s->signs)
        crypto_sign_detached(signature, NULL, text, sizeof text, s->sign_secret);
}

bool federated_signed_set(const struct secure_client *s, const uint8_t *public_key,
                          const uint8_t *signature)
{
    uint8_t text[SET_TEXT];
    text_of_set(s, text);
    return crypto_sign_verify_detached(signature, text, sizeof text, public_key) == 0;
}

/* ---- the list of peers ----------------------------------------------------------------------- */

static int add_peer(struct secure_client *s, const struct rf_federated_client_key *given)
{
    struct secure_peer *peer = s->peers + s->peer_count;
    size_t bytes = 0;
    if (!given->name || !rf_handshake_is_name(given->name, strlen(given->name)) || !given->key ||
        strlen(given->key) != 2 * sizeof peer->key ||
        sodium_hex2bin(peer->key, sizeof peer->key, given->key, 2 * sizeof peer->key, NULL, &bytes,
                       NULL) != 0 ||
        bytes != sizeof peer->key)
        return rf_fail(RF_EINVAL,
                       "the peer \"%.80s\" needs a name of a client, and an identity of 64 "
                       "hexadecimal digits",
                       given->name ? given->name : "");
    for (int k = 0; k < s->peer_count; k++)
        if (strcmp(s->peers[k].name, given->name) == 0)
            return rf_fail(RF_EINVAL, "client %s is twice in the list of peers", given->name);
        else if (memcmp(s->peers[k].key, peer->key, sizeof peer->key) == 0)
            return rf_fail(RF_EINVAL, "clients %s and %s have one identity: give each its own",
                           s->peers[k].name, given->name);
    snprintf(peer->name, sizeof peer->name, "%s", given->name);
    s->peer_count++;
    return RF_OK;
}

/* The others would refuse it. */
static int find_itself(const struct secure_client *s)
{
    if (!s->signs)
        return rf_fail(RF_EAUTH, "a client with a list of peers signs its own keys too: set "
                                 "RF_IDENTITY_KEY");
    for (int k = 0; k < s->peer_count; k++)
        if (strcmp(s->peers[k].name, s->name) == 0)
            return memcmp(s->peers[k].key, s->sign_public, sizeof s->sign_public) == 0
                       ? RF_OK
                       : rf_fail(RF_EAUTH,
                                 "the list of peers has another identity for client %s than its "
                                 "secret gives",
                                 s->name);
    return rf_fail(RF_EAUTH, "client %s itself is not in its list of peers", s->name);
}

int federated_identify(struct secure_client *s, const struct rf_client_opts *opts)
{
    const char *secret = opts->secret ? opts->secret : rf_env("RF_IDENTITY_KEY");
    snprintf(s->name, sizeof s->name, "%s", opts->name);
    s->least = opts->secure;
    if (secret && secret[0]) {
        key_pair(secret, s->sign_public, s->sign_secret);
        s->signs = true;
    }
    if (opts->secure == 1 || opts->secure < 0 || opts->secure > FEDERATED_MEMBERS ||
        opts->peer_count < 0 || (opts->peer_count > 0) != (opts->peers != NULL) ||
        (opts->peers && !opts->secure) || opts->peer_count > FEDERATED_MEMBERS)
        return rf_fail(RF_EINVAL,
                       "the threshold of secure aggregation is 2 to %d, and only with it there are "
                       "peers, at most %d",
                       FEDERATED_MEMBERS, FEDERATED_MEMBERS);
    if (!opts->peers)
        return RF_OK;
    if (!(s->peers = rf_alloc((size_t)opts->peer_count * sizeof *s->peers)))
        return rf_fail(RF_ENOMEM, "out of memory for %d peers", opts->peer_count);
    for (int k = 0; k < opts->peer_count; k++)
        RETURN_IF_ERROR(add_peer(s, opts->peers + k));
    return find_itself(s);
}
