/* SPDX-License-Identifier: MIT
 *
 * Which elements of a parameter a tensor rank has: struct rf_split as arithmetic. Used by layout.c,
 * and by whoever carries parameters between a rank's memory and the outside.
 */
#ifndef RF_PARALLEL_SPLIT_H
#define RF_PARALLEL_SPLIT_H

#include <ringforge/train.h>

/* A parameter as it is cut: over `ranks` ranks, of which this is `rank`. With `count` > 1 it has
 * the parts of ranks rank to rank + count - 1, one behind the other; 0 means 1. */
struct rf_param_cut {
    struct rf_shape shape; /* of the whole */
    struct rf_split split; /* kind NONE: every rank has all of it */
    int ranks, rank, count;
};

/* Part `part` of those that a cut has, from 0, and at which element of them it begins. Of a
 * parameter that is not cut every part is all of it. */
struct rf_param_cut rf_cut_part(const struct rf_param_cut *cut, int part);
uint64_t rf_cut_part_first(const struct rf_param_cut *cut, int part);

/* RF_EINVAL: the split does not fit the shape, or the ranks do not divide what must not be ragged.
 * The message begins with the name. */
RF_MUST_CHECK int rf_cut_check(const struct rf_param_cut *cut, const char *name);

/* Whether the same elements are whose, of two parameters of the same shape. */
bool rf_cut_same(const struct rf_param_cut *a, const struct rf_param_cut *b);

/* What this rank has. */
struct rf_shape rf_cut_shape(const struct rf_param_cut *cut);

/* Elements that lie behind each other both in this rank's part and in the whole. A whole that is
 * not cut, or by one rank, is one run. */
struct rf_cut_run {
    uint64_t first, count; /* in the whole */
    bool first_copy;       /* no lower rank has them */
    int copies, copy;      /* how many ranks have them; of these, how many are lower */
};

/* Whether several ranks have some of its elements. */
bool rf_cut_has_copies(const struct rf_param_cut *cut);

/* Elements of a row of this rank's part, where columns are cut; else 0. */
uint64_t rf_cut_line(const struct rf_param_cut *cut);

/* Those from element `at` of this rank's part on. */
struct rf_cut_run rf_cut_run_at(const struct rf_param_cut *cut, uint64_t at);

/* The next chunk of the norm: at most `most` elements of this rank's part that no lower rank has.
 * Chunks begin at multiples of `most` of a part, or behind elements that a lower rank has; with
 * UINT64_MAX they are as long as can be. *at moves on, from 0; false: there are no more. */
bool rf_cut_next_chunk(const struct rf_param_cut *cut, uint64_t most, uint64_t *at, uint64_t *first,
                       uint64_t *count);

/* At most so many of them begin at elements [from, to): the same for all ranks whose parts have the
 * same shape. */
uint64_t rf_cut_count_chunks(const struct rf_param_cut *cut, uint64_t most, uint64_t from,
                             uint64_t to);

/* Elements [first, first + count) of this rank's part, from or to an array of the whole. Those that
 * a lower rank has, too, are not put: the sum of what all ranks put into zeros is the whole. */
void rf_cut_take(const struct rf_param_cut *cut, uint64_t first, uint64_t count, const float *whole,
                 float *part);
void rf_cut_put(const struct rf_param_cut *cut, uint64_t first, uint64_t count, const float *part,
                float *whole);

#endif
