/* SPDX-License-Identifier: MIT
 *
 * Cuts of parameters over tensor ranks; see split.h.
 */
#include "split.h"

#include "../base/base.h"

/* Of one segment, in rows or columns: where it begins in the whole, and what of it the rank has. */
struct segment {
    int64_t first, size;
    int64_t begin, end; /* of the segment */
    bool first_copy;
};

static int segment_count(const struct rf_split *split)
{
    return split->segments > 0 ? split->segments : 1;
}

static int64_t unit_of(const struct rf_split *split)
{
    return split->unit > 0 ? split->unit : 1;
}

/* Rows or columns of the whole. */
static int64_t length_of(const struct rf_param_cut *cut)
{
    return cut->split.kind == RF_SPLIT_COLUMNS ? cut->shape.dim[cut->shape.ndim - 1]
                                               : cut->shape.dim[0];
}

static int64_t size_of(const struct rf_param_cut *cut, int segment)
{
    return cut->split.sizes[0] ? cut->split.sizes[segment]
                               : length_of(cut) / segment_count(&cut->split);
}

static struct segment segment_of(const struct rf_param_cut *cut, int segment)
{
    const int64_t unit = unit_of(&cut->split);
    struct segment s = {.size = size_of(cut, segment)};
    for (int k = 0; k < segment; k++)
        s.first += size_of(cut, k);
    const int64_t units = s.size / unit;
    const int64_t begin = cut->rank * units / cut->ranks;
    const int64_t end = (cut->rank + 1) * units / cut->ranks;
    const bool copied = units < cut->ranks;
    s.begin = begin * unit;
    s.end = (copied ? begin + 1 : end) * unit;
    s.first_copy = !copied || cut->rank == 0 || (cut->rank - 1) * units / cut->ranks != begin;
    return s;
}

static int check_segments(const struct rf_param_cut *cut, const char *name)
{
    const struct rf_split *split = &cut->split;
    const int count = segment_count(split);
    int64_t sum = 0;
    for (int k = 0; k < count; k++) {
        const int64_t size = size_of(cut, k), units = size / unit_of(split);
        if (size < 1 || size % unit_of(split) != 0)
            return rf_fail(RF_EINVAL,
                           "parameter %s: segment %d of its split has %lld rows or columns, which "
                           "must be a positive multiple of its unit %lld",
                           name, k, (long long)size, (long long)unit_of(split));
        const bool ragged = units % cut->ranks != 0 && (count > 1 || unit_of(split) > 1);
        const bool copies =
            units < cut->ranks && split->kind == RF_SPLIT_ROWS && cut->ranks % units == 0;
        if ((ragged || units < cut->ranks) && !copies)
            return rf_fail(RF_EINVAL,
                           "parameter %s: %d tensor ranks do not divide the %lld units of a "
                           "segment of its split; use a tp that does",
                           name, cut->ranks, (long long)units);
        sum += size;
    }
    if (sum != length_of(cut))
        return rf_fail(RF_EINVAL,
                       "parameter %s: the segments of its split have %lld rows or columns, it has "
                       "%lld",
                       name, (long long)sum, (long long)length_of(cut));
    return 0;
}

int rf_cut_check(const struct rf_param_cut *cut, const char *name)
{
    const struct rf_split *split = &cut->split;
    if (split->kind == RF_SPLIT_NONE)
        return 0;
    if ((unsigned)split->kind > RF_SPLIT_COLUMNS || split->segments < 0 ||
        split->segments > RF_MAX_SEGMENTS || split->unit < 0)
        return rf_fail(RF_EINVAL,
                       "parameter %s: a split has a kind of enum rf_split_kind, up to %d segments, "
                       "and a unit that is not negative",
                       name, RF_MAX_SEGMENTS);
    if (split->kind == RF_SPLIT_COLUMNS && cut->shape.ndim < 2)
        return rf_fail(RF_EINVAL, "parameter %s: a vector has no columns to split; use rows", name);
    return check_segments(cut, name);
}

bool rf_cut_same(const struct rf_param_cut *a, const struct rf_param_cut *b)
{
    if (a->split.kind != b->split.kind || a->ranks != b->ranks)
        return false;
    for (int k = 0; a->split.kind != RF_SPLIT_NONE && k < RF_MAX_SEGMENTS; k++)
        if (a->split.sizes[k] != b->split.sizes[k])
            return false;
    return a->split.kind == RF_SPLIT_NONE ||
           (segment_count(&a->split) == segment_count(&b->split) &&
            unit_of(&a->split) == unit_of(&b->split));
}

/* Rows or columns that the rank has. */
static int64_t own_length(const struct rf_param_cut *cut)
{
    int64_t own = 0;
    for (int k = 0; k < segment_count(&cut->split); k++) {
        const struct segment s = segment_of(cut, k);
        own += s.end - s.begin;
    }
    return own;
}

struct rf_shape rf_cut_shape(const struct rf_param_cut *cut)
{
    struct rf_shape shape = cut->shape;
    if (cut->split.kind == RF_SPLIT_ROWS)
        shape.dim[0] = own_length(cut);
    else if (cut->split.kind == RF_SPLIT_COLUMNS)
        shape.dim[shape.ndim - 1] = own_length(cut);
    return shape;
}

struct rf_cut_run rf_cut_run_at(const struct rf_param_cut *cut, uint64_t at)
{
    const uint64_t all = (uint64_t)rf_shape_count(cut->shape);
    if (cut->split.kind == RF_SPLIT_NONE)
        return (struct rf_cut_run){at, all - at, cut->rank == 0};
    const uint64_t length = (uint64_t)length_of(cut);
    const bool rows = cut->split.kind == RF_SPLIT_ROWS;
    const uint64_t width = rows ? all / length : 1; /* elements of a row, or of a column's place */
    const uint64_t own = (uint64_t)own_length(cut);
    const uint64_t line = rows ? 0 : at / own; /* of columns: which row */
    uint64_t left = rows ? at : at % own;
    for (int k = 0; k < segment_count(&cut->split); k++) {
        const struct segment s = segment_of(cut, k);
        const uint64_t size = (uint64_t)(s.end - s.begin) * width;
        if (left < size)
            return (struct rf_cut_run){line * length + (uint64_t)(s.first + s.begin) * width + left,
                                       size - left, s.first_copy};
        left -= size;
    }
    return (struct rf_cut_run){all, 0, false};
}

bool rf_cut_next_chunk(const struct rf_param_cut *cut, uint64_t most, uint64_t *at, uint64_t *first,
                       uint64_t *count)
{
    const uint64_t all = (uint64_t)rf_shape_count(rf_cut_shape(cut));
    while (*at < all) {
        struct rf_cut_run run = rf_cut_run_at(cut, *at);
        if (cut->split.kind == RF_SPLIT_COLUMNS) /* no copies: all of it counts */
            run = (struct rf_cut_run){0, all - *at, true};
        const uint64_t to_grid = most - *at % most;
        *first = *at;
        *count = run.count < to_grid ? run.count : to_grid;
        *at += run.first_copy ? *count : run.count;
        if (run.first_copy)
            return true;
    }
    return false;
}
