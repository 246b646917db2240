/* SPDX-License-Identifier: MIT
 *
 * Keys: which parameters a push or a pull is about.
 */
#include <math.h>

#include "store.h"

static int64_t width_of(const struct rf_store_keys *keys)
{
    return keys->width ? keys->width : 1;
}

struct rf_store_keys rf_store_range(int64_t first, int64_t count)
{
    return (struct rf_store_keys){.first = first, .count = count};
}

void rf_store_divide(int64_t all, int parts, int part, int64_t *first, int64_t *count)
{
    const int64_t each = all / parts, longer = all % parts;
    *first = part * each + (part < longer ? part : longer);
    *count = each + (part < longer);
}

void rf_store_shard(const struct rf_store_opts *opts, int server, int64_t *first, int64_t *count)
{
    rf_store_divide(opts->count, opts->servers ? opts->servers : 1, server, first, count);
}

bool rf_store_term_of(const struct rf_store_opts *opts, int server, int index,
                      struct rf_store_term *out)
{
    int64_t first, count, before = 0;
    rf_store_shard(opts, server, &first, &count);
    for (int k = 0; k < index && k < opts->term_count; k++)
        before += rf_store_values(opts->terms + k);
    if (index >= opts->term_count)
        return false;
    const int64_t begin = opts->terms[index].first;
    const int64_t end = begin + rf_store_values(opts->terms + index);
    const int64_t from = begin > first ? begin : first;
    const int64_t to = end < first + count ? end : first + count;
    *out = (struct rf_store_term){from - first, to - from, before + from - begin};
    return from < to;
}

int64_t rf_store_values(const struct rf_store_keys *keys)
{
    int64_t values;
    return __builtin_mul_overflow(width_of(keys), keys->count, &values) ? -1 : values;
}

static int check_rows(const char *call, const struct rf_store_keys *keys, int64_t most)
{
    int64_t before = -1;
    for (int64_t k = 0; k < keys->count; k++) {
        const int64_t row = keys->rows[k];
        if (row <= before)
            return rf_fail(RF_EINVAL,
                           "%s: row %lld comes behind row %lld: rows ascend, each once; add up the "
                           "gradients of a row first",
                           call, (long long)row, (long long)before);
        if (row >= most)
            return rf_fail(RF_EINVAL, "%s: row %lld of a table that has %lld in the store", call,
                           (long long)row, (long long)most);
        before = row;
    }
    return RF_OK;
}

int rf_store_check_keys(const char *call, const struct rf_store_keys *keys, int64_t count)
{
    if (!keys || keys->width < 0 || keys->count < 0 || keys->first < 0 || keys->first > count)
        return rf_fail(RF_EINVAL,
                       "%s: keys have a first parameter from 0 to %lld, and 0 or more rows", call,
                       (long long)count);
    const int64_t most = (count - keys->first) / width_of(keys);
    if (keys->rows)
        return check_rows(call, keys, most);
    if (keys->count > most)
        return rf_fail(RF_EINVAL,
                       "%s: %lld rows of %lld from parameter %lld on, of a store that has %lld "
                       "parameters",
                       call, (long long)keys->count, (long long)width_of(keys),
                       (long long)keys->first, (long long)count);
    return RF_OK;
}

int rf_store_check_finite(const char *call, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return rf_fail(RF_EINVAL, "%s: value %lld is %g; a gradient must be finite", call,
                           (long long)i, (double)values[i]);
    return RF_OK;
}

bool rf_store_next(struct rf_store_walk *walk, struct rf_store_piece *out)
{
    const struct rf_store_keys *keys = walk->keys;
    const int64_t width = width_of(keys), from = walk->row;
    if (from >= keys->count)
        return false;
    int64_t end = keys->rows ? from + 1 : keys->count;
    while (keys->rows && end < keys->count && keys->rows[end] == keys->rows[end - 1] + 1)
        end++;
    out->first = keys->first + width * (keys->rows ? keys->rows[from] : 0);
    out->count = width * (end - from);
    walk->row = end;
    return true;
}
