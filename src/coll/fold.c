/* SPDX-License-Identifier: MIT
 *
 * The fold of many operands at once, block by block, so that partial sums never leave the cache and
 * 16-bit types are rounded once. Called by exec.c.
 */
#include "reduce.h"

#include <string.h>

#include "../base/base.h"

enum {
    BLOCK_BYTES = 2048,
    BLOCK_FLOATS = BLOCK_BYTES / sizeof(float),
    PAST_BYTES = 512,
    MOST_LEVELS = 33 /* partial sums that wait for their sibling: one per bit of a leaf index */
};

/* To be widened: a caller's own reduction works on its type. */
static bool is_narrow(const struct rf_fold *fold)
{
    return (fold->dtype == RF_F16 || fold->dtype == RF_BF16) && !fold->custom;
}

static enum rf_dtype working_type(const struct rf_fold *fold)
{
    return is_narrow(fold) ? RF_F32 : fold->dtype;
}

/* Part i of this block in the working type: in place, or widened into `wide`. */
static const void *part(const struct rf_fold *fold, uint32_t i, size_t offset, size_t count,
                        float *wide)
{
    const unsigned char *data = (const unsigned char *)fold->parts[i].data + offset;
    if (!is_narrow(fold))
        return data;
    rf_widen(wide, data, count, fold->dtype);
    return wide;
}

static void combine(const struct rf_fold *fold, void *dst, const void *left, const void *right,
                    size_t count)
{
    if (fold->custom)
        fold->custom->combine(dst, left, right, count, fold->custom->user);
    else
        rf_combine(dst, left, right, count, working_type(fold), fold->redop);
}

static const void *fold_in_order(const struct rf_fold *fold, size_t offset, size_t count, void *dst,
                                 float *sum)
{
    float wide[BLOCK_FLOATS];
    const void *left = part(fold, 0, offset, count, sum);
    for (uint32_t i = 1; i < fold->part_count; i++) {
        /* dst may be a part: it is written when all have been read. */
        bool last = i + 1 == fold->part_count;
        void *to = last && !is_narrow(fold) ? dst : sum;
        combine(fold, to, left, part(fold, i, offset, count, wide), count);
        left = to;
    }
    return left;
}

/* A binary counter: parts arrive in leaf order, and two neighbours of equal level become one of the
 * next. What remains at the end has no sibling and is added to the subtree before it. */
static const void *fold_by_tree(const struct rf_fold *fold, size_t offset, size_t count,
                                float (*sums)[BLOCK_FLOATS])
{
    const void *waiting[MOST_LEVELS];
    int levels[MOST_LEVELS], depth = 0;
    for (uint32_t i = 0; i < fold->part_count; i++) {
        waiting[depth] = part(fold, i, offset, count, sums[depth]);
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

/* Elements [offset / element, ... + count) of the sum, to `to`. */
static void fold_block(void *to, const struct rf_fold *fold, size_t offset, size_t count)
{
    _Alignas(64) float sums[MOST_LEVELS][BLOCK_FLOATS];
    const void *sum = fold->tree ? fold_by_tree(fold, offset, count, sums)
                                 : fold_in_order(fold, offset, count, to, sums[0]);
    if (is_narrow(fold)) {
        if (fold->divisor != 1)
            rf_divide(sums[0], count, RF_F32, fold->divisor);
        rf_narrow(to, sums[0], count, fold->dtype);
        return;
    }
    if (sum != to)
        memcpy(to, sum, count * rf_dtype_bytes(fold->dtype));
    if (fold->divisor != 1)
        rf_divide(to, count, fold->dtype, fold->divisor);
}

void rf_fold(void *dst, const struct rf_fold *fold, size_t count)
{
    size_t element = rf_dtype_bytes(fold->dtype);
    size_t block = BLOCK_BYTES / rf_dtype_bytes(working_type(fold));
    for (size_t done = 0; done < count; done += block)
        fold_block((unsigned char *)dst + done * element, fold, done * element,
                   count - done < block ? count - done : block);
}

/* Elements up to where the first place is on a line of the cache, or 0. */
static size_t to_line(const unsigned char *place, size_t element)
{
    size_t bytes = (64 - (uintptr_t)place % 64) % 64;
    return bytes % element == 0 ? bytes / element : 0;
}

/* Past the caches the blocks are short, so that reading and writing memory overlap. */
void rf_fold_to_all(unsigned char *const *places, int place_count, const struct rf_fold *fold,
                    size_t count, bool past_caches)
{
    _Alignas(64) unsigned char sum[BLOCK_BYTES];
    size_t element = rf_dtype_bytes(fold->dtype);
    size_t block =
        past_caches ? PAST_BYTES / element : BLOCK_BYTES / rf_dtype_bytes(working_type(fold));
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
