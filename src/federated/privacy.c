/* SPDX-License-Identifier: MIT
 *
 * Clipping and Gaussian noise of an update, by random numbers that nobody can predict.
 */
#include <math.h>
#include <sodium.h>

#include "base/base.h"
#include "client.h"

enum { PAIRS = 512 };

/* Uniform in (0, 1]. */
static double uniform(uint64_t bits)
{
    return (double)((bits >> 11) + 1) * 0x1p-53;
}

/* Adds noise to at most 2 PAIRS values (Box, Muller 1958). */
static void add_noise(float *values, int64_t count, const uint64_t *bits, double deviation)
{
    for (int64_t i = 0; i < count; i += 2) {
        const double radius = deviation * sqrt(-2 * log(uniform(bits[i])));
        const double angle = 2 * M_PI * uniform(bits[i + 1]);
        values[i] = (float)((double)values[i] + radius * cos(angle));
        if (i + 1 < count)
            values[i + 1] = (float)((double)values[i + 1] + radius * sin(angle));
    }
}

void federated_privatise(float *values, int64_t count, double clip, double noise)
{
    uint8_t key[crypto_stream_chacha20_KEYBYTES], nonce[crypto_stream_chacha20_NONCEBYTES];
    uint64_t bits[2 * PAIRS];
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)values[i] * (double)values[i];
    const double scale = squares > clip * clip ? clip / sqrt(squares) : 1;
    for (int64_t i = 0; scale < 1 && i < count; i++)
        values[i] = (float)((double)values[i] * scale);
    if (noise == 0)
        return;
    randombytes_buf(key, sizeof key);
    for (int64_t i = 0, n; i < count; i += n) {
        n = count - i < 2 * PAIRS ? count - i : 2 * PAIRS;
        memcpy(nonce, &i, sizeof nonce);
        crypto_stream_chacha20((unsigned char *)bits, sizeof bits, nonce, key);
        add_noise(values + i, n, bits, noise * clip);
    }
    sodium_memzero(key, sizeof key);
    sodium_memzero(bits, sizeof bits);
}
