/* SPDX-License-Identifier: MIT
 *
 * Shares of secrets. The field is that of AES: bytes modulo x^8 + x^4 + x^3 + x + 1.
 */
#include "shamir.h"

#include <sodium.h>
#include <string.h>

static uint8_t multiply(uint8_t a, uint8_t b)
{
    uint8_t product = 0;
    for (int bit = 0; bit < 8; bit++) {
        product ^= (uint8_t)(-(b & 1) & a);
        a = (uint8_t)((a << 1) ^ (-(a >> 7) & 0x1b));
        b >>= 1;
    }
    return product;
}

/* a^254; 0 of 0. */
static uint8_t inverse(uint8_t a)
{
    uint8_t square = a, out = 1;
    for (int bit = 1; bit < 8; bit++) {
        square = multiply(square, square);
        out = multiply(out, square);
    }
    return out;
}

void federated_share(const uint8_t secret[SHAMIR_BYTES], int threshold, int count,
                     uint8_t (*shares)[SHAMIR_BYTES])
{
    uint8_t coefficients[SHAMIR_MOST][SHAMIR_BYTES];
    memcpy(coefficients[0], secret, SHAMIR_BYTES);
    randombytes_buf(coefficients[1], (size_t)(threshold - 1) * SHAMIR_BYTES);
    for (int k = 0; k < count; k++) {
        const uint8_t x = (uint8_t)(k + 1);
        memset(shares[k], 0, SHAMIR_BYTES);
        for (int power = threshold - 1; power >= 0; power--)
            for (int i = 0; i < SHAMIR_BYTES; i++)
                shares[k][i] = multiply(shares[k][i], x) ^ coefficients[power][i];
    }
    sodium_memzero(coefficients, sizeof coefficients);
}

/* Lagrange's polynomials at 0; a difference is a sum in this field. */
void federated_share_weights(const uint8_t *members, int count, uint8_t *weights)
{
    for (int k = 0; k < count; k++) {
        const uint8_t x = (uint8_t)(members[k] + 1);
        uint8_t above = 1, below = 1;
        for (int other = 0; other < count; other++) {
            if (other == k)
                continue;
            above = multiply(above, (uint8_t)(members[other] + 1));
            below = multiply(below, (uint8_t)((members[other] + 1) ^ x));
        }
        weights[k] = multiply(above, inverse(below));
    }
}

void federated_unshare(const uint8_t *const *shares, const uint8_t *weights, int count,
                       uint8_t secret[SHAMIR_BYTES])
{
    memset(secret, 0, SHAMIR_BYTES);
    for (int k = 0; k < count; k++)
        for (int i = 0; i < SHAMIR_BYTES; i++)
            secret[i] ^= multiply(shares[k][i], weights[k]);
}
