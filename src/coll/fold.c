/* SPDX-License-Identifier: MIT
 *
 * The fold of many operands at once, block by block, so that partial sums never leave the cache and
 * 16-bit types are rounded once. Called by exec.c.
 */
#include "reduce.h"

#include <string.h>

#include "../base/base.h"

enum {
    BLOCK_FLOATS = RF_FOLD_BYTES / sizeof(float),
    PAST_BYTES = 512,
    MOST_LEVELS = 33 /* partial sums that wait for their sibling: at most one per bit of a leaf
                      * index */
};

static bool is_narrow(const struct rf_fold *fold)
{
    return rf_fold_type(fold) != fold->dtype;
}

static void combine(const struct rf_fold *fold, void *dst, const void *left, const void *right,
                    size_t count)
{
    if (fold->custom)
        fold->custom->combine(dst, left, right, count, fold->custom->user);
    else
        rf_combine(dst, left, right, count, rf_fold_type(fold), fold->redop);
}

static const void *fold_in_order(const struct rf_fold *fold, size_t offset, size_t count, void *dst,
                                 float *sum)
{
    float wide[BLOCK_FLOATS];
    const void *left = rf_fold_part(fold, 0, offset, count, sum);
    for (uint32_t i = 1; i < fold->part_count; i++) {
        /* dst may be a part: it is written after all parts have been read. */
        bool last = i + 1 == fold->part_count;
        void *to = last && !is_narrow(fold) ? dst : sum;
        combine(fold, to, left, rf_fold_part(fold, i, offset, count, wide), count);
        left = to;
    }
    return left;
}

/* A binary counter: parts arrive in leaf order, and two neighbours of equal level become one of the
 * next. A remaining subtree has no sibling and is added to the one before it. */
static const void *fold_by_tree(const struct rf_fold *fold, size_t offset, size_t count,
                                float (*sums)[BLOCK_FLOATS])
{
    const void *waiting[MOST_LEVELS];
    int levels[MOST_LEVELS], depth = 0;
    for (uint32_t i = 0; i < fold->part_count; i++) {
        waiting[depth] = rf_fold_part(fold, i, offset, count, sums[depth]);
        levels[depth++] = fold->parts[i].level;
        bool last = i + 1 == fold->part_count;
        while (depth > 1 && (last || levels[depth - 1] == levels[depth - 2])) {
            depth--;
            combine(fold, sums[depth - 1], waiting[depth - 1], waiting[depth], count);
            waiting[depth - 1] = sums[depth - 1];
            levels[depth - 1]++;
        }
    }
    return waiting[0];
}

static const void *sum_of(const struct rf_fold *fold, size_t offset, size_t count, void *to,
                          float (*sums)[BLOCK_FLOATS])
{
    return fold->tree ? fold_by_tree(fold, offset, count, sums)
                      : fold_in_order(fold, offset, count, to, sums[0]);
}

static bool is_part(const struct rf_fold *fold, size_t offset, const void *place)
{
    uint32_t i = 0;
    while (i < fold->part_count && (const unsigned char *)fold->parts[i].data + offset != place)
        i++;
    return i < fold->part_count;
}

/* Written to `to`, unless that is a part: parts are read again when the sum is known. */
static const void *average_of(const struct rf_fold *fold, size_t offset, size_t count, void *to,
                              float (*sums)[BLOCK_FLOATS])
{
    const enum rf_dtype type = rf_fold_type(fold);
    void *room = is_narrow(fold) || is_part(fold, offset, to) ? sums[0] : to;
    if (type != RF_F32 && type != RF_F64) {
        rf_average_integers(room, fold, offset, count);
        return room;
    }
    const void *sum = sum_of(fold, offset, count, room, sums);
    if (sum != room)
        memcpy(room, sum, count * rf_dtype_bytes(type));
    rf_average_floats(room, fold, offset, count);
    return room;
}

/* Folds elements [offset / element, ... + count) into `to`. */
static void fold_block(void *to, const struct rf_fold *fold, size_t offset, size_t count)
{
    _Alignas(64) float sums[MOST_LEVELS][BLOCK_FLOATS];
    const void *sum = fold->divisor != 1 ? average_of(fold, offset, count, to, sums)
                                         : sum_of(fold, offset, count, to, sums);
    if (is_narrow(fold))
        rf_narrow(to, sum, count, fold->dtype);
    else if (sum != to)
        memcpy(to, sum, count * rf_dtype_bytes(fold->dtype));
}

void rf_fold(void *dst, const struct rf_fold *fold, size_t count)
{
    size_t element = rf_dtype_bytes(fold->dtype);
    size_t block = RF_FOLD_BYTES / rf_dtype_bytes(rf_fold_type(fold));
    for (size_t done = 0; done < count; done += block)
        fold_block((unsigned char *)dst + done * element, fold, done * element,
                   count - done < block ? count - done : block);
}

/* The number of elements until the first place is on a cache line, or 0. */
static size_t to_line(const unsigned char *place, size_t element)
{
    size_t bytes = (64 - (uintptr_t)place % 64) % 64;
    return bytes % element == 0 ? bytes / element : 0;
}

/* With stores past the caches the blocks are short, so that reading and writing memory overlap. */
void rf_fold_to_all(unsigned char *const *places, int place_count, const struct rf_fold *fold,
                    size_t count, bool past_caches)
{
    _Alignas(64) unsigned char sum[RF_FOLD_BYTES];
    size_t element = rf_dtype_bytes(fold->dtype);
    size_t block =
        past_caches ? PAST_BYTES / element : RF_FOLD_BYTES / rf_dtype_bytes(rf_fold_type(fold));
    size_t now = past_caches ? to_line(places[0], element) : 0;
    for (size_t done = 0; done < count; done += now, now = 0) {
        now = now > 0 ? now : block;
        now = count - done < now ? count - done : now;
        fold_block(sum, fold, done * element, now);
        if (past_caches) {
            rf_copy_past_all(places, place_count, done * element, sum, now * element);
            continue;
        }
        for (int i = 0; i < place_count; i++)
            memcpy(places[i] + done * element, sum, now * element);
    }
    if (past_caches)
        rf_copy_fence();
}
