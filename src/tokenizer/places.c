/* SPDX-License-Identifier: MIT
 *
 * Tracks the origin of a text's bytes through normalization and division; see internal.h.
 */
#include "../base/base.h"
#include "internal.h"
#include "utf8.h"

static int reserve(struct rf_places *places, size_t more)
{
    if (more <= places->capacity - places->count)
        return 0;
    const size_t wanted = 2 * places->capacity + more + 64;
    struct rf_offset *list = rf_realloc(places->list, wanted * sizeof(*list));
    if (!list)
        return rf_fail(RF_ENOMEM, "tokenizer: out of memory for the places of %zu bytes", wanted);
    places->list = list;
    places->capacity = wanted;
    return 0;
}

int rf_places_keep(struct rf_work *work, size_t begin, size_t count)
{
    struct rf_places *to = &work->other_from;
    if (!work->places || count == 0)
        return 0;
    RETURN_IF_ERROR(reserve(to, count));
    memcpy(to->list + to->count, work->from.list + begin, count * sizeof(*to->list));
    to->count += count;
    return 0;
}

int rf_places_put(struct rf_work *work, size_t at, size_t count)
{
    struct rf_places *to = &work->other_from;
    const struct rf_places *from = &work->from;
    if (!work->places || count == 0)
        return 0;
    RETURN_IF_ERROR(reserve(to, count));
    const struct rf_offset place = at < from->count  ? from->list[at]
                                   : from->count > 0 ? from->list[from->count - 1]
                                                     : (struct rf_offset){0, 0};
    for (size_t i = 0; i < count; i++)
        to->list[to->count++] = place;
    return 0;
}

int rf_places_begin(struct rf_work *work, const char *text, size_t begin, size_t count)
{
    struct rf_places *to = &work->from;
    to->count = 0;
    if (!work->places)
        return 0;
    RETURN_IF_ERROR(reserve(to, count));
    for (size_t i = 0, length; i < count; i += length) {
        length = rf_utf8_length(text[begin + i]);
        for (size_t k = 0; k < length; k++)
            to->list[to->count++] =
                (struct rf_offset){(uint32_t)(begin + i), (uint32_t)(begin + i + length)};
    }
    return 0;
}

void rf_places_swap(struct rf_work *work)
{
    const struct rf_places swap = work->from;
    work->from = work->other_from;
    work->other_from = swap;
}

struct rf_offset rf_places_of(const struct rf_places *places, size_t begin, size_t end)
{
    return (struct rf_offset){places->list[begin].begin, places->list[end - 1].end};
}
