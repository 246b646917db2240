/* SPDX-License-Identifier: MIT
 *
 * The elements of the whole that a step of a schedule handles. For input and output they follow
 * from the operation; for temporary memory from earlier writes, so the steps of all ranks are
 * visited in a possible order of execution.
 */
#include <string.h>

#include "schedule.h"

/* Bytes of temporary memory, and their place in the whole. */
struct patch {
    uint64_t at, bytes, from;
};
struct schedule_memory {
    struct patch *patches; /* by `at`; no two overlap */
    uint32_t count, capacity;
};

struct schedule_memory *schedule_memory_create(int ranks)
{
    return calloc((size_t)ranks, sizeof(struct schedule_memory));
}

void schedule_memory_free(struct schedule_memory *memory, int ranks)
{
    for (int r = 0; memory && r < ranks; r++)
        free(memory[r].patches);
    free(memory);
}

/* ---- temporary memory ------------------------------------------------------------------------ */

static bool reserve(void **items, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    const uint32_t wanted = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(*items, wanted * item_bytes);
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

static bool insert(struct schedule_memory *m, uint32_t index, struct patch patch)
{
    if (!reserve((void **)&m->patches, m->count, &m->capacity, sizeof(*m->patches)))
        return false;
    memmove(m->patches + index + 1, m->patches + index, (m->count - index) * sizeof(patch));
    m->patches[index] = patch;
    m->count++;
    return true;
}

/* Removes the previous contents. *index is the position for a patch that begins at `at`. */
static bool clear(struct schedule_memory *m, uint64_t at, uint64_t bytes, uint32_t *index)
{
    const uint64_t end = at + bytes;
    uint32_t k = 0;
    while (k < m->count && m->patches[k].at + m->patches[k].bytes <= at)
        k++;
    if (k < m->count && m->patches[k].at < at) {
        const struct patch old = m->patches[k];
        m->patches[k++].bytes = at - old.at;
        if (old.at + old.bytes > end &&
            !insert(m, k, (struct patch){end, old.at + old.bytes - end, old.from + (end - old.at)}))
            return false;
    }
    uint32_t last = k;
    while (last < m->count && m->patches[last].at + m->patches[last].bytes <= end)
        last++;
    if (last > k)
        memmove(m->patches + k, m->patches + last, (m->count - last) * sizeof(struct patch));
    m->count -= last - k;
    if (k < m->count && m->patches[k].at < end) {
        struct patch *cut = &m->patches[k];
        const uint64_t gone = end - cut->at;
        *cut = (struct patch){end, cut->bytes - gone, cut->from + gone};
    }
    *index = k;
    return true;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int add_range(struct schedule_job *job, struct schedule_step *step, uint64_t first,
                     uint64_t count)
{
    struct rf_schedule_range *last =
        step->range_count ? &job->ranges[step->range + step->range_count - 1] : NULL;
    if (count == 0)
        return 0;
    if (last && last->first + last->count == first) {
        last->count += count;
        return 0;
    }
    if (!reserve((void **)&job->ranges, job->range_count, &job->range_capacity,
                 sizeof(*job->ranges)))
        return -1;
    if (step->range_count++ == 0)
        step->range = job->range_count;
    job->ranges[job->range_count++] = (struct rf_schedule_range){first, count};
    return 0;
}

/* Those of a place that is read. */
static int read_place(struct schedule_job *job, const struct schedule_memory *m,
                      const struct rf_schedule_desc *desc, int rank, struct schedule_step *step,
                      struct rf_schedule_place place)
{
    const uint64_t element = rf_dtype_bytes(desc->dtype), end = place.offset + step->bytes;
    struct rf_schedule_range side;
    if (place.space != RF_SCHEDULE_TEMP) {
        if (rf_schedule_get_side(desc, rank, place.space, &side) < 0)
            return -1;
        return add_range(job, step, side.first + place.offset / element, step->bytes / element);
    }
    for (uint32_t k = 0; k < m->count; k++) {
        const struct patch *p = &m->patches[k];
        const uint64_t from = p->at > place.offset ? p->at : place.offset;
        const uint64_t to = p->at + p->bytes < end ? p->at + p->bytes : end;
        if (from < to &&
            add_range(job, step, (p->from + (from - p->at)) / element, (to - from) / element) < 0)
            return -1;
    }
    return 0;
}

static int write_place(const struct schedule_job *job, struct schedule_memory *m, uint64_t element,
                       const struct schedule_step *step, struct rf_schedule_place place)
{
    uint64_t at = place.offset;
    uint32_t index;
    if (place.space != RF_SCHEDULE_TEMP || step->bytes == 0)
        return 0;
    if (!clear(m, place.offset, step->bytes, &index))
        return -1;
    for (uint32_t i = 0; i < step->range_count; i++) {
        const struct rf_schedule_range *r = &job->ranges[step->range + i];
        if (!insert(m, index++, (struct patch){at, r->count * element, r->first * element}))
            return -1;
        at += r->count * element;
    }
    return 0;
}

int schedule_find_ranges(struct schedule_job *job, struct schedule_memory *memory, int rank,
                         uint32_t number)
{
    const struct rf_schedule *schedule = job->of[rank].schedule;
    struct schedule_step *step = &job->of[rank].list[number];
    struct rf_schedule_step own;
    struct rf_schedule_place place;
    struct rf_schedule_desc desc;
    if (!schedule_desc_of(job->call, rank, &desc) ||
        rf_schedule_get_step(schedule, number, &own) < 0)
        return -1;
    bool reads = own.operands > 0;
    if (reads && rf_schedule_get_operand(schedule, number, 0, &place) < 0)
        return -1;
    if (own.verb == RF_SCHEDULE_REDUCE_ALL) {
        place = own.to;
        reads = true;
    }
    if (reads && read_place(job, &memory[rank], &desc, rank, step, place) < 0)
        return -1;
    const bool writes = own.verb == RF_SCHEDULE_RECV || own.verb == RF_SCHEDULE_REDUCE ||
                        own.verb == RF_SCHEDULE_COPY;
    return writes ? write_place(job, &memory[rank], rf_dtype_bytes(desc.dtype), step, own.to) : 0;
}

const char *schedule_ranges_text(const struct rf_schedule_range *ranges, uint32_t count,
                                 uint32_t most, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < count && used < size; i++) {
        const struct rf_schedule_range *r = &ranges[i];
        const char *comma = i ? "," : "";
        int more;
        if (i == most)
            more = snprintf(text + used, size - used, "...");
        else if (r->count == 1)
            more =
                snprintf(text + used, size - used, "%s%llu", comma, (unsigned long long)r->first);
        else
            more = snprintf(text + used, size - used, "%s%llu-%llu", comma,
                            (unsigned long long)r->first,
                            (unsigned long long)(r->first + r->count - 1));
        used += (size_t)more;
        if (i == most)
            break;
    }
    return text;
}
