/* SPDX-License-Identifier: MIT
 *
 * Secrets of 32 bytes in shares, of which `threshold` make the secret, and fewer tell nothing
 * (Shamir 1979): each byte is the value at 0 of a polynomial over GF(2^8), and the share of member
 * i its value at i + 1. No branch and no address depends on a secret.
 */
#ifndef RF_FEDERATED_SHAMIR_H
#define RF_FEDERATED_SHAMIR_H

#include <stdint.h>

enum { SHAMIR_BYTES = 32, SHAMIR_MOST = 255 };

/* The shares of members 0 to count - 1; 1 <= threshold <= count <= SHAMIR_MOST. */
void federated_share(const uint8_t secret[SHAMIR_BYTES], int threshold, int count,
                     uint8_t (*shares)[SHAMIR_BYTES]);

/* What the shares of these different members are multiplied by; the same for all secrets. */
void federated_share_weights(const uint8_t *members, int count, uint8_t *weights);

/* The secret, of the shares of `count` members with these weights. */
void federated_unshare(const uint8_t *const *shares, const uint8_t *weights, int count,
                       uint8_t secret[SHAMIR_BYTES]);

#endif
