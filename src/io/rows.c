/* SPDX-License-Identifier: MIT
 *
 * Documents as rows of a batch; see data.h. Used by text.c and samples.c.
 */
#include "../base/base.h"
#include "dataset.h"

#define ORDER_SITE 0x726f7773u /* separates these random numbers from others */

static int64_t tokens_of(const struct rf_dataset *data, int64_t document)
{
    return data->starts[document + 1] - data->starts[document];
}

int rf_rows_make(struct rf_dataset *data, int64_t pack)
{
    int64_t left = 0;
    data->packed = pack > 0;
    data->rows = rf_alloc((size_t)(data->documents + 1) * sizeof(*data->rows));
    if (!data->rows)
        return rf_fail(RF_ENOMEM, "data: out of memory for %lld documents",
                       (long long)data->documents);
    for (int64_t d = 0; d < data->documents; d++) {
        if (data->row_count == 0 || tokens_of(data, d) > left) {
            data->rows[data->row_count++] = d;
            left = pack;
        }
        left -= tokens_of(data, d);
    }
    data->rows[data->row_count] = data->documents;
    data->train_rows = data->row_count - data->row_count / 10;
    data->train = data->starts[data->rows[data->train_rows]];
    return 0;
}

void rf_row_copy(const struct rf_dataset *data, int64_t row, int64_t seq, int32_t *tokens,
                 int32_t *targets)
{
    int64_t t = 0;
    const int64_t end = row < data->row_count ? data->rows[row + 1] : 0;
    for (int64_t d = data->rows[row]; d < end; d++)
        for (int64_t at = data->starts[d]; at < data->starts[d + 1] && t < seq; at++, t++) {
            const bool last = at + 1 == data->starts[d + 1];
            const bool learned = !last && data->learned[at + 1];
            tokens[t] = rf_dataset_token(data, at);
            targets[t] = learned                ? rf_dataset_token(data, at + 1)
                         : last && data->packed ? RF_TARGET_LAST
                                                : RF_TARGET_NONE;
        }
    for (; t < seq; t++) {
        tokens[t] = data->padding;
        targets[t] = RF_TARGET_NONE;
    }
}

/* A permutation of 0 to n - 1: a Feistel network on the next power of four, repeated while its
 * result is too large (Black, Rogaway 2002). */
static uint64_t permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t at)
{
    enum { ROUNDS = 6 };
    int bits = 1;
    while ((uint64_t)1 << (2 * bits) < n)
        bits++;
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    do {
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint64_t right = at & mask;
            uint32_t drawn[4];
            rf_philox(seed, right, epoch * ROUNDS + round + ((uint64_t)ORDER_SITE << 32), drawn);
            at = right << bits | ((at >> bits ^ drawn[0]) & mask);
        }
    } while (at >= n);
    return at;
}

int64_t rf_row_of_sample(const struct rf_dataset *data, uint64_t seed, int64_t sample)
{
    return (int64_t)permute(seed, (uint64_t)(sample / data->train_rows), (uint64_t)data->train_rows,
                            (uint64_t)(sample % data->train_rows));
}

/* ---- what the caller may ask ----------------------------------------------------------------- */

int64_t rf_dataset_documents(const struct rf_dataset *data)
{
    return data->documents;
}

int64_t rf_dataset_rows(const struct rf_dataset *data)
{
    return data->row_count;
}

int64_t rf_dataset_cut(const struct rf_dataset *data, int64_t seq)
{
    int64_t cut = 0;
    for (int64_t d = 0; d < data->documents; d++)
        cut += tokens_of(data, d) - 1 > seq;
    return cut;
}

int64_t rf_dataset_left_out(const struct rf_dataset *data)
{
    return data->left_out;
}

int rf_dataset_name_chat(struct rf_dataset *data, const char *name)
{
    data->chat = rf_strdup(name);
    return data->chat ? 0 : rf_fail(RF_ENOMEM, "data: out of memory");
}

const char *rf_dataset_chat(const struct rf_dataset *data)
{
    return data->chat;
}
