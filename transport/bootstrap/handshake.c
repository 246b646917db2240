/* SPDX-License-Identifier: MIT
 *
 * Challenge and response with libsodium's crypto_auth (HMAC-SHA-512-256). listener.c (rank 0) and
 * join.c (all others) have the order of messages.
 */
#include "handshake.h"

#include <sodium.h>

#include "../control/frame.h"
#include "base/base.h"

_Static_assert(crypto_auth_BYTES == RF_PROOF_BYTES, "size of a proof");
_Static_assert(crypto_auth_KEYBYTES == 32, "size of a key");

int rf_job_key_init(struct rf_job_key *key, const char *text)
{
    static const unsigned char purpose[] = "ringforge job key 1";
    memset(key, 0, sizeof(*key));
    if (sodium_init() < 0)
        return rf_fail(RF_ENOTSUP, "libsodium cannot start on this machine");
    size_t length = text ? strlen(text) : 0;
    key->present = length > 0;
    crypto_generichash(key->key, sizeof(key->key), (const unsigned char *)(text ? text : ""),
                       length, purpose, sizeof(purpose) - 1);
    return 0;
}

void rf_random(void *out, size_t bytes)
{
    randombytes_buf(out, bytes);
}

void rf_handshake_hello(const struct rf_handshake *h, uint8_t out[RF_HELLO_BYTES])
{
    rf_put32(out, h->version);
    rf_put32(out + 4, h->rank);
    rf_put32(out + 8, h->size);
    memcpy(out + 12, h->joiner, RF_NONCE_BYTES);
}

void rf_handshake_read_hello(struct rf_handshake *h, const uint8_t in[RF_HELLO_BYTES])
{
    h->version = rf_get32(in);
    h->rank = rf_get32(in + 4);
    h->size = rf_get32(in + 8);
    memcpy(h->joiner, in + 12, RF_NONCE_BYTES);
}

enum { FIXED = 1 + RF_HELLO_BYTES + RF_NONCE_BYTES + RF_JOB_BYTES, MOST = FIXED + RF_NAME_BYTES };

static size_t transcript(const struct rf_job_key *key, const struct rf_handshake *h, char role,
                         uint8_t out[MOST])
{
    const size_t name = strnlen(h->name, RF_NAME_BYTES);
    out[0] = (uint8_t)role;
    rf_handshake_hello(h, out + 1);
    memcpy(out + 1 + RF_HELLO_BYTES, h->listener, RF_NONCE_BYTES);
    memcpy(out + 1 + RF_HELLO_BYTES + RF_NONCE_BYTES, key->job, RF_JOB_BYTES);
    memcpy(out + FIXED, h->name, name);
    return FIXED + name;
}

void rf_handshake_prove(const struct rf_job_key *key, const struct rf_handshake *h, char role,
                        uint8_t out[RF_PROOF_BYTES])
{
    uint8_t text[MOST];
    crypto_auth(out, text, transcript(key, h, role, text), key->key);
}

bool rf_handshake_check(const struct rf_job_key *key, const struct rf_handshake *h, char role,
                        const uint8_t proof[RF_PROOF_BYTES])
{
    uint8_t text[MOST];
    return crypto_auth_verify(proof, text, transcript(key, h, role, text), key->key) == 0;
}

bool rf_handshake_is_name(const char *text, size_t bytes)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  ".-_";
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == 0 || !strchr(allowed, text[i]))
            return false;
    return bytes > 0 && bytes <= RF_NAME_BYTES;
}

void rf_handshake_derive(const struct rf_job_key *key, const struct rf_handshake *h, char role,
                         uint8_t out[32])
{
    uint8_t text[MOST];
    crypto_auth(out, text, transcript(key, h, role, text), key->key);
}
