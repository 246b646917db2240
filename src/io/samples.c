/* SPDX-License-Identifier: MIT
 *
 * Samples of a data set, and what it consists of; see data.h. The tokens come from text.c or
 * token_file.c.
 */
#include "../base/base.h"
#include "dataset.h"

#define SAMPLE_SITE 0x64617461u /* separates these random numbers from those of parameters */

int64_t rf_dataset_train_tokens(const struct rf_dataset *data)
{
    return data->train;
}

int64_t rf_dataset_held_out_tokens(const struct rf_dataset *data)
{
    return data->count - data->train;
}

int rf_dataset_files(const struct rf_dataset *data)
{
    return data->files;
}

int64_t rf_dataset_vocabulary(const struct rf_dataset *data)
{
    return data->vocabulary;
}

static uint32_t hash_starts(const struct rf_dataset *data)
{
    uint32_t hash = (uint32_t)data->row_count;
    for (int64_t d = 0; d <= data->documents; d++) {
        uint8_t bytes[8];
        for (int k = 0; k < 8; k++)
            bytes[k] = (uint8_t)((uint64_t)data->starts[d] >> (8 * k));
        hash = rf_hash32(bytes, sizeof(bytes), hash);
    }
    return hash;
}

uint64_t rf_dataset_hash(const struct rf_dataset *data)
{
    enum { PIECE = 4096 };
    uint8_t bytes[4 * PIECE]; /* the same byte order on every machine */
    const int64_t width = data->width;
    uint64_t hash = (uint64_t)data->count;
    if (data->documents) /* which of the tokens are learned, and where documents begin */
        hash = hash << 32 ^ rf_hash32(data->learned, (size_t)data->count, (uint32_t)hash) ^
               (uint64_t)hash_starts(data) << 32;
    for (int64_t first = 0; first < data->count; first += PIECE) {
        const int64_t left = data->count - first, n = left < PIECE ? left : PIECE;
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < width; k++)
                bytes[width * i + k] = (uint8_t)(rf_dataset_token(data, first + i) >> (8 * k));
        const uint32_t low = rf_hash32(bytes, (size_t)(width * n), (uint32_t)hash);
        const uint32_t high = rf_hash32(bytes, (size_t)(width * n), (uint32_t)(hash >> 32) ^ low);
        hash = (uint64_t)high << 32 | low;
    }
    return hash;
}

/* ---- samples --------------------------------------------------------------------------------- */

int rf_dataset_samples(const struct rf_dataset *data, uint64_t seed, int64_t first, int64_t count,
                       int64_t seq, int32_t *tokens, int32_t *targets)
{
    if (first < 0 || count < 1 || seq < 1)
        return rf_fail(RF_EINVAL, "data: first %lld, count %lld, sequence %lld: must be positive",
                       (long long)first, (long long)count, (long long)seq);
    for (int64_t i = 0; i < count && data->documents; i++)
        rf_row_copy(data, rf_row_of_sample(data, seed, first + i), seq, tokens + i * seq,
                    targets + i * seq);
    if (data->documents)
        return 0;
    if (data->train <= seq)
        return rf_fail(RF_EINVAL,
                       "data: %lld tokens to train on are too few for sequences of %lld and the "
                       "token after them; use more text or shorter sequences",
                       (long long)data->train, (long long)seq);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = (int64_t)rf_philox_below(seed, SAMPLE_SITE, (uint64_t)first + (uint64_t)i,
                                              (uint64_t)(data->train - seq));
        for (int64_t t = 0; t < seq; t++) {
            tokens[i * seq + t] = rf_dataset_token(data, at + t);
            targets[i * seq + t] = rf_dataset_token(data, at + t + 1);
        }
    }
    return 0;
}

int64_t rf_dataset_held_out_sequences(const struct rf_dataset *data, int64_t seq)
{
    if (data->documents)
        return data->row_count - data->train_rows;
    int64_t pairs = rf_dataset_held_out_tokens(data) - 1;
    return pairs > 0 && seq > 0 ? (pairs + seq - 1) / seq : 0;
}

int rf_dataset_held_out(const struct rf_dataset *data, int64_t first, int64_t batch, int64_t seq,
                        int32_t *tokens, int32_t *targets)
{
    if (first < 0 || batch < 1 || seq < 1)
        return rf_fail(RF_EINVAL, "data: first %lld, batch %lld, sequence %lld: must be positive",
                       (long long)first, (long long)batch, (long long)seq);
    for (int64_t i = 0; i < batch && data->documents; i++) {
        const int64_t row = data->train_rows + first + i;
        rf_row_copy(data, row < data->row_count ? row : data->row_count, seq, tokens + i * seq,
                    targets + i * seq);
    }
    for (int64_t i = 0; i < batch * seq && !data->documents; i++) {
        int64_t at = data->train + first * seq + i;
        bool there = at + 1 < data->count;
        tokens[i] = there ? rf_dataset_token(data, at) : 0;
        targets[i] = there ? rf_dataset_token(data, at + 1) : -1;
    }
    return 0;
}
