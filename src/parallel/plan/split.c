/* SPDX-License-Identifier: MIT
 *
 * Splits of parameters over tensor ranks; see split.h.
 */
#include "split.h"

#include "../../base/base.h"

/* One segment, in rows or columns: its begin in the whole, and the rank's part of it. */
struct segment {
    int64_t first, size;
    int64_t lines;      /* of which each is divided */
    int64_t begin, end; /* relative to a line */
    int copies, copy;   /* like those of struct rf_cut_run */
};

static int segment_count(const struct rf_split *split)
{
    return split->segments > 0 ? split->segments : 1;
}

static int64_t unit_of(const struct rf_split *split)
{
    return split->unit > 0 ? split->unit : 1;
}

/* The number of rows or columns of the whole. */
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

static bool is_on_all(const struct rf_split *split, int segment)
{
    return split->whole >> segment & 1;
}

static int64_t lines_of(const struct rf_split *split)
{
    return split->lines > 0 ? split->lines : 1;
}

/* `first`: where the segment begins. */
static struct segment segment_of(const struct rf_param_cut *cut, int segment, int64_t first)
{
    const int64_t unit = unit_of(&cut->split);
    struct segment s = {.first = first, .size = size_of(cut, segment), .lines = 1};
    if (is_on_all(&cut->split, segment)) {
        s.end = s.size;
        s.copies = cut->ranks;
        s.copy = cut->rank;
        return s;
    }
    s.lines = lines_of(&cut->split);
    const int64_t units = s.size / s.lines / unit;
    const int64_t begin = cut->rank * units / cut->ranks;
    const int64_t end = (cut->rank + 1) * units / cut->ranks;
    const bool copied = units < cut->ranks;
    s.begin = begin * unit;
    s.end = (copied ? begin + 1 : end) * unit;
    /* Copies exist only if the number of ranks is a multiple of the units. */
    s.copies = copied ? (int)(cut->ranks / units) : 1;
    s.copy = cut->rank % s.copies;
    return s;
}

/* Whether the rank has all elements, in order. */
static bool is_whole(const struct rf_param_cut *cut)
{
    return cut->split.kind == RF_SPLIT_NONE || cut->ranks == 1;
}

static int parts_of(const struct rf_param_cut *cut)
{
    return is_whole(cut) || cut->count < 1 ? 1 : cut->count;
}

struct rf_param_cut rf_cut_part(const struct rf_param_cut *cut, int part)
{
    struct rf_param_cut one = *cut;
    if (!is_whole(cut)) {
        one.rank += part;
        one.count = 1;
    }
    return one;
}

static uint64_t own_elements(const struct rf_param_cut *cut)
{
    return (uint64_t)rf_shape_count(rf_cut_shape(cut));
}

uint64_t rf_cut_part_first(const struct rf_param_cut *cut, int part)
{
    uint64_t first = 0;
    for (int k = 0; k < part && k < parts_of(cut); k++) {
        const struct rf_param_cut one = rf_cut_part(cut, k);
        first += is_whole(cut) ? 0 : own_elements(&one);
    }
    return first;
}

/* The part with an element of a cut, and the element's index in it. */
static struct rf_param_cut part_at(const struct rf_param_cut *cut, uint64_t *at)
{
    struct rf_param_cut one = rf_cut_part(cut, 0);
    for (int k = 1; k < parts_of(cut) && *at >= own_elements(&one); k++) {
        *at -= own_elements(&one);
        one = rf_cut_part(cut, k);
    }
    return one;
}

/* Lines, and segments that every rank has. */
static int check_raw(const struct rf_param_cut *cut, const char *name)
{
    const struct rf_split *split = &cut->split;
    if (!split->lines && !split->whole)
        return 0;
    if (split->kind != RF_SPLIT_ROWS || cut->shape.ndim != 1 || unit_of(split) != 1 ||
        !split->sizes[0] || split->lines < 0)
        return rf_fail(RF_EINVAL,
                       "parameter %s: lines, and segments that every rank has, need a vector that "
                       "is split by rows, with sizes and without a unit",
                       name);
    for (int k = 0; k < segment_count(split); k++)
        if (!is_on_all(split, k) && split->sizes[k] % (lines_of(split) * cut->ranks) != 0)
            return rf_fail(RF_EINVAL,
                           "parameter %s: %d tensor ranks do not divide the %lld words of segment "
                           "%d in %lld lines; use a tp that does",
                           name, cut->ranks, (long long)split->sizes[k], k,
                           (long long)lines_of(split));
    return 0;
}

static int check_segments(const struct rf_param_cut *cut, const char *name)
{
    const struct rf_split *split = &cut->split;
    const int count = segment_count(split);
    int64_t sum = 0;
    for (int k = 0; k < RF_MAX_SEGMENTS; k++)
        if ((split->sizes[k] != 0) != (split->sizes[0] != 0 && k < count))
            return rf_fail(RF_EINVAL,
                           "parameter %s: its split has %d segments; give the sizes of these, or "
                           "none if they are equal",
                           name, count);
    for (int k = 0; k < count; k++) {
        const int64_t size = size_of(cut, k), units = size / unit_of(split);
        if (size < 1 || size > length_of(cut) || size % unit_of(split) != 0)
            return rf_fail(RF_EINVAL,
                           "parameter %s: segment %d of its split has %lld rows or columns, which "
                           "must be a positive multiple of its unit %lld and not more than it has",
                           name, k, (long long)size, (long long)unit_of(split));
        const bool ragged = units % cut->ranks != 0 && (count > 1 || unit_of(split) > 1);
        const bool copies =
            units < cut->ranks && split->kind == RF_SPLIT_ROWS && cut->ranks % units == 0;
        if ((ragged || units < cut->ranks) && !copies && !is_on_all(split, k))
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
    RETURN_IF_ERROR(check_raw(cut, name));
    return check_segments(cut, name);
}

bool rf_cut_same(const struct rf_param_cut *a, const struct rf_param_cut *b)
{
    if (a->split.kind != b->split.kind || a->ranks != b->ranks || parts_of(a) != parts_of(b))
        return false;
    if (a->split.kind == RF_SPLIT_NONE)
        return true;
    const int count = segment_count(&a->split);
    if (count != segment_count(&b->split) || unit_of(&a->split) != unit_of(&b->split) ||
        lines_of(&a->split) != lines_of(&b->split) || a->split.whole != b->split.whole)
        return false;
    for (int k = 0; k < count; k++)
        if (size_of(a, k) != size_of(b, k))
            return false;
    return true;
}

/* The number of rows or columns of a rank with one part. */
static int64_t part_length(const struct rf_param_cut *cut)
{
    int64_t own = 0, first = 0;
    for (int k = 0; k < segment_count(&cut->split); k++) {
        const struct segment s = segment_of(cut, k, first);
        own += s.lines * (s.end - s.begin);
        first += s.size;
    }
    return own;
}

static int64_t own_length(const struct rf_param_cut *cut)
{
    int64_t own = 0;
    for (int k = 0; k < parts_of(cut); k++) {
        const struct rf_param_cut one = rf_cut_part(cut, k);
        own += part_length(&one);
    }
    return own;
}

struct rf_shape rf_cut_shape(const struct rf_param_cut *cut)
{
    struct rf_shape shape = cut->shape;
    if (is_whole(cut))
        return shape;
    shape.dim[cut->split.kind == RF_SPLIT_COLUMNS ? shape.ndim - 1 : 0] = own_length(cut);
    return shape;
}

struct rf_cut_lines rf_cut_lines_at(const struct rf_param_cut *cut, uint64_t at)
{
    struct rf_cut_lines out = {0};
    if (cut->split.kind == RF_SPLIT_COLUMNS && !is_whole(cut))
        return (struct rf_cut_lines){(uint64_t)own_length(cut), (uint64_t)length_of(cut), 0,
                                     own_elements(cut)};
    if (cut->split.lines < 2 || is_whole(cut))
        return out;
    uint64_t left = at;
    const struct rf_param_cut one = part_at(cut, &left);
    out.end = at - left;
    for (int k = 0; k < segment_count(&cut->split) && out.end <= at; k++) {
        const struct segment s = segment_of(&one, k, 0);
        out.begin = out.end;
        out.end += (uint64_t)(s.lines * (s.end - s.begin));
        out.length = s.lines > 1 ? (uint64_t)(s.end - s.begin) : 0;
        out.step = (uint64_t)(s.size / s.lines);
    }
    return out;
}

/* The run in a cut of one part. */
static struct rf_cut_run run_in_part(const struct rf_param_cut *cut, uint64_t at)
{
    const uint64_t all = (uint64_t)rf_shape_count(cut->shape);
    const uint64_t length = (uint64_t)length_of(cut);
    const bool rows = cut->split.kind == RF_SPLIT_ROWS;
    const uint64_t width = rows ? all / length : 1; /* elements in a unit of `length` */
    const uint64_t own = rows ? 0 : (uint64_t)part_length(cut);
    const uint64_t line = rows ? 0 : at / own; /* of columns: the row */
    uint64_t left = rows ? at : at % own;
    int64_t first = 0;
    for (int k = 0; k < segment_count(&cut->split); k++) {
        const struct segment s = segment_of(cut, k, first);
        const uint64_t size = (uint64_t)(s.end - s.begin) * width;
        const uint64_t all_of_line = (uint64_t)(s.size / s.lines) * width;
        if (left < (uint64_t)s.lines * size)
            return (struct rf_cut_run){line * length + (uint64_t)(s.first + s.begin) * width +
                                           left / size * all_of_line + left % size,
                                       size - left % size, s.copy == 0, s.copies, s.copy};
        left -= (uint64_t)s.lines * size;
        first += s.size;
    }
    return (struct rf_cut_run){.first = all};
}

struct rf_cut_run rf_cut_run_at(const struct rf_param_cut *cut, uint64_t at)
{
    const int held = cut->count > 1 ? cut->count : 1;
    if (is_whole(cut))
        return (struct rf_cut_run){at, (uint64_t)rf_shape_count(cut->shape) - at, cut->rank == 0,
                                   cut->ranks / held, cut->rank / held};
    const struct rf_param_cut one = part_at(cut, &at);
    return run_in_part(&one, at);
}

/* The number of elements from `at` on, at most `most`, that no lower rank has; 0: a lower rank has
 * `at`. */
static uint64_t counted_at(const struct rf_param_cut *cut, uint64_t at, uint64_t most)
{
    uint64_t count = 0;
    if (cut->split.kind == RF_SPLIT_COLUMNS && !is_whole(cut)) /* there are no copies */
        return most;
    while (count < most) {
        const struct rf_cut_run run = rf_cut_run_at(cut, at + count);
        if (!run.first_copy)
            break;
        count += run.count;
    }
    return count < most ? count : most;
}

bool rf_cut_next_chunk(const struct rf_param_cut *cut, uint64_t most, uint64_t *at, uint64_t *first,
                       uint64_t *count)
{
    const uint64_t all = own_elements(cut);
    while (*at < all) {
        uint64_t within = *at;
        const struct rf_param_cut one = part_at(cut, &within);
        const uint64_t to_grid = most - within % most;
        const uint64_t left = is_whole(cut) ? all - *at : own_elements(&one) - within;
        *first = *at;
        *count = counted_at(cut, *at, left < to_grid ? left : to_grid);
        if (*count > 0) {
            *at += *count;
            return true;
        }
        *at += rf_cut_run_at(cut, *at).count;
    }
    return false;
}

static bool has_copies(const struct rf_param_cut *cut)
{
    bool copies = false;
    for (int k = 0; k < segment_count(&cut->split); k++)
        copies = copies || (is_on_all(&cut->split, k) && cut->ranks > 1) ||
                 size_of(cut, k) / unit_of(&cut->split) < cut->ranks;
    return cut->split.kind == RF_SPLIT_ROWS && copies;
}

bool rf_cut_has_copies(const struct rf_param_cut *cut)
{
    return cut->ranks > 1 && (is_whole(cut) || has_copies(cut));
}

/* The number of multiples of `step` in [from, to), which is not empty. */
static uint64_t multiples(uint64_t step, uint64_t from, uint64_t to)
{
    return (to - 1) / step - (from > 0 ? (from - 1) / step : 0) + (from == 0);
}

uint64_t rf_cut_count_chunks(const struct rf_param_cut *cut, uint64_t most, uint64_t from,
                             uint64_t to)
{
    const uint64_t behind_copies = has_copies(cut) ? (uint64_t)segment_count(&cut->split) : 0;
    uint64_t chunks = 0, before = 0;
    for (int k = 0; k < parts_of(cut); k++) {
        const struct rf_param_cut one = rf_cut_part(cut, k);
        const uint64_t all = own_elements(&one);
        const uint64_t low = from > before ? from - before : 0;
        const uint64_t high = to < before ? 0 : to - before < all ? to - before : all;
        if (low < high)
            chunks += multiples(most, low, high) + behind_copies;
        before += all;
    }
    return chunks;
}

void rf_cut_take(const struct rf_param_cut *cut, uint64_t first, uint64_t count, const float *whole,
                 float *part)
{
    for (uint64_t done = 0; done < count;) {
        const struct rf_cut_run run = rf_cut_run_at(cut, first + done);
        const uint64_t n = run.count < count - done ? run.count : count - done;
        memcpy(part + done, whole + run.first, n * sizeof(*part));
        done += n;
    }
}

void rf_cut_put(const struct rf_param_cut *cut, uint64_t first, uint64_t count, const float *part,
                float *whole)
{
    for (uint64_t done = 0; done < count;) {
        const struct rf_cut_run run = rf_cut_run_at(cut, first + done);
        const uint64_t n = run.count < count - done ? run.count : count - done;
        if (run.first_copy)
            memcpy(whole + run.first, part + done, n * sizeof(*part));
        done += n;
    }
}
