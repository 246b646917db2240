/* SPDX-License-Identifier: MIT
 *
 * Samples of a data set, and its description; see data.h. The tokens come from text.c or
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

/* ---- hash ------------------------------------------------------------------------------------ */

/* Tokens are hashed in pieces. A long text is sampled at equal distances, so that startup does not
 * read files of any size. */
enum { LANES = 4, PIECE = 1 << 14, WHOLE = 1 << 28, PIECES = 1 << 12 };

/* Lanes have independent multiply chains. The result does not depend on byte order. */
struct lanes {
    uint64_t lane[LANES];
};

static inline void mix(uint64_t *lane, uint64_t value)
{
    const uint64_t sum = *lane ^ value * 0x9e3779b97f4a7c15u;
    *lane = (sum << 29 | sum >> 35) * 0xd6e8feb86659fd93u;
}

static void mix_tokens(struct lanes *l, const struct rf_dataset *data, int64_t first, int64_t count)
{
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES)
        for (int k = 0; k < LANES; k++)
            mix(&l->lane[k], (uint64_t)(uint32_t)rf_dataset_token(data, first + i + 2 * k) |
                                 (uint64_t)(uint32_t)rf_dataset_token(data, first + i + 2 * k + 1)
                                     << 32);
    for (; i < count; i++)
        mix(&l->lane[i % LANES], (uint32_t)rf_dataset_token(data, first + i));
    if (data->documents) /* the flags of learned tokens */
        for (i = 0; i < count; i++)
            mix(&l->lane[i % LANES], data->learned[first + i]);
}

uint64_t rf_dataset_hash(const struct rf_dataset *data)
{
    struct lanes l = {{1, 2, 3, 4}};
    const int64_t step = data->count <= WHOLE ? PIECE : data->count / PIECES;
    for (int64_t first = 0; first < data->count; first += step) {
        const int64_t left = data->count - first;
        mix_tokens(&l, data, first, left < PIECE ? left : PIECE);
    }
    for (int64_t d = 0; data->documents && d <= data->documents; d++)
        mix(&l.lane[0], (uint64_t)data->starts[d]);
    uint64_t hash = 0;
    mix(&hash, (uint64_t)data->count);
    mix(&hash, (uint64_t)data->row_count);
    for (int k = 0; k < LANES; k++)
        mix(&hash, l.lane[k]);
    return hash ^ hash >> 32;
}

/* ---- samples --------------------------------------------------------------------------------- */

int rf_dataset_samples(const struct rf_dataset *data, uint64_t seed, struct rf_sample_range range,
                       int32_t *tokens, int32_t *targets)
{
    const int64_t first = range.first, count = range.count, seq = range.seq;
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

int rf_dataset_held_out(const struct rf_dataset *data, struct rf_sample_range range,
                        int32_t *tokens, int32_t *targets)
{
    const int64_t first = range.first, batch = range.count, seq = range.seq;
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
