/* SPDX-License-Identifier: MIT
 *
 * Masks of a secure aggregation, and the secrets that they come from.
 */
#include <sodium.h>
#include <string.h>

#include "base/base.h"
#include "secure.h"

_Static_assert(SECURE_PIECE % 8 == 0, "a piece begins at a block of the stream");

void federated_mask(const uint8_t seed[FEDERATED_KEY_BYTES], int sign, int64_t first, int64_t n,
                    uint64_t *stream, uint64_t *values)
{
    static const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES]; /* a seed has one stream */
    uint8_t *bytes = (uint8_t *)stream;
    memset(bytes, 0, (size_t)n * 8);
    crypto_stream_chacha20_xor_ic(bytes, bytes, (size_t)n * 8, nonce, (uint64_t)first / 8, seed);
    for (int64_t i = 0; i < n; i++)
        values[i] += sign > 0 ? stream[i] : 0 - stream[i];
}

bool federated_agree(char purpose, uint64_t run, int64_t round, const uint8_t *own_secret,
                     const uint8_t *other_public, const uint8_t *first_public,
                     const uint8_t *second_public, uint8_t out[FEDERATED_KEY_BYTES])
{
    uint8_t agreed[crypto_scalarmult_BYTES];
    crypto_generichash_state state;
    if (crypto_scalarmult(agreed, own_secret, other_public) != 0)
        return false;
    crypto_generichash_init(&state, agreed, sizeof agreed, FEDERATED_KEY_BYTES);
    crypto_generichash_update(&state, (const uint8_t *)&purpose, 1);
    crypto_generichash_update(&state, (const uint8_t *)&run, sizeof run);
    crypto_generichash_update(&state, (const uint8_t *)&round, sizeof round);
    crypto_generichash_update(&state, first_public, FEDERATED_KEY_BYTES);
    crypto_generichash_update(&state, second_public, FEDERATED_KEY_BYTES);
    crypto_generichash_final(&state, out, FEDERATED_KEY_BYTES);
    sodium_memzero(agreed, sizeof agreed);
    sodium_memzero(&state, sizeof state);
    return true;
}

void federated_commit(const uint8_t seed[FEDERATED_KEY_BYTES], uint8_t out[32])
{
    static const uint8_t purpose[] = "seed";
    crypto_generichash(out, 32, purpose, sizeof purpose, seed, FEDERATED_KEY_BYTES);
}
