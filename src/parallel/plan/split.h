/* SPDX-License-Identifier: MIT
 *
 * The elements of a parameter that a tensor rank has: the arithmetic of struct rf_split. Used by
 * layout.c, and by the files that copy parameters to and from a rank's memory.
 */
#ifndef RF_PARALLEL_SPLIT_H
#define RF_PARALLEL_SPLIT_H

#include <ringforge/train.h>

/* A parameter that is split over `ranks` ranks, of which this is `rank`. With `count` > 1 it has
 * the parts of ranks rank to rank + count - 1, one after the other; 0 means 1. */
struct rf_param_cut {
    struct rf_shape shape; /* of the whole parameter */
    struct rf_split split; /* kind NONE: every rank has the whole parameter */
    int ranks, rank, count;
};

/* Part `part` (from 0) of a cut that has several, and the index of its first element. If the
 * parameter is not split, every part is the whole. */
struct rf_param_cut rf_cut_part(const struct rf_param_cut *cut, int part);
uint64_t rf_cut_part_first(const struct rf_param_cut *cut, int part);

/* RF_EINVAL: the split does not match the shape, or the number of ranks does not divide it. The
 * message begins with the name. */
RF_MUST_CHECK int rf_cut_check(const struct rf_param_cut *cut, const char *name);

/* Whether two parameters of the same shape are divided among ranks in the same way. */
bool rf_cut_same(const struct rf_param_cut *a, const struct rf_param_cut *b);

/* The shape of this rank's part. */
struct rf_shape rf_cut_shape(const struct rf_param_cut *cut);

/* Elements that are contiguous both in this rank's part and in the whole. A parameter that is not
 * split, or has one rank, is a single run. */
struct rf_cut_run {
    uint64_t first, count; /* in the whole parameter */
    bool first_copy;       /* no lower rank has them */
    int copies, copy;      /* how many ranks have them; how many of these are lower */
};

/* Whether several ranks have some of its elements. */
bool rf_cut_has_copies(const struct rf_param_cut *cut);

/* Elements [begin, end) of this rank's part are lines of `length`, of which each is a part of a line
 * of `step` elements of the whole: columns that are split, or lines of a segment. length 0: none. */
struct rf_cut_lines {
    uint64_t length, step, begin, end;
};
struct rf_cut_lines rf_cut_lines_at(const struct rf_param_cut *cut, uint64_t at);

/* The run that begins at element `at` of this rank's part. */
struct rf_cut_run rf_cut_run_at(const struct rf_param_cut *cut, uint64_t at);

/* The next chunk of the norm: at most `most` elements of this rank's part that no lower rank has.
 * Chunks begin at multiples of `most` of a part, or after elements that a lower rank has; with
 * UINT64_MAX they are as long as possible. *at starts at 0 and is advanced. False: there are no
 * more chunks. */
bool rf_cut_next_chunk(const struct rf_param_cut *cut, uint64_t most, uint64_t *at, uint64_t *first,
                       uint64_t *count);

/* The maximum number of these chunks that begin at elements [from, to): the same for all ranks
 * whose parts have the same shape. */
uint64_t rf_cut_count_chunks(const struct rf_param_cut *cut, uint64_t most, uint64_t from,
                             uint64_t to);

/* Copy elements [first, first + count) of this rank's part from or to an array of the whole.
 * rf_cut_put omits elements that a lower rank has, so the sum of all ranks' arrays, which begin as
 * zeros, is the whole. */
void rf_cut_take(const struct rf_param_cut *cut, uint64_t first, uint64_t count, const float *whole,
                 float *part);
void rf_cut_put(const struct rf_param_cut *cut, uint64_t first, uint64_t count, const float *part,
                float *whole);

#endif
