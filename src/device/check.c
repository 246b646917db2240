/* SPDX-License-Identifier: MIT
 *
 * The hazard checker: keeps the commands and barriers of a submission as they were recorded, and
 * verifies that there is a barrier between any two conflicting commands. It shares no code with
 * track.c, whose errors it must find: validation layers cannot see accesses through device
 * addresses. It knows only the ranges that launches declare.
 */
#include "internal.h"

struct checked_range {
    uint64_t first, last; /* inclusive, so that "everything" needs no special case */
    uint32_t command;
    bool write;
};

struct rf_check {
    struct checked_range *ranges;
    size_t range_count, range_capacity;
    char (*names)[RF_NAME_BYTES]; /* one name for each command */
    size_t command_count, command_capacity;
    size_t *barriers; /* for each barrier, the number of ranges recorded before it */
    size_t barrier_count, barrier_capacity;
    int status; /* RF_ENOMEM: some commands could not be kept */
};

int rf_check_create(struct rf_check **out)
{
    struct rf_check *check = rf_alloc(sizeof(*check));
    if (!check)
        return rf_fail(RF_ENOMEM, "no memory for the hazard checker");
    *out = check;
    return 0;
}

void rf_check_destroy(struct rf_check *check)
{
    if (!check)
        return;
    rf_free(check->ranges);
    rf_free(check->names);
    rf_free(check->barriers);
    rf_free(check);
}

/* Reserves space for one more element. */
static int grow(struct rf_check *check, void **list, size_t count, size_t *capacity, size_t bytes)
{
    if (count < *capacity)
        return 0;
    size_t wanted = *capacity ? 2 * *capacity : 64;
    void *moved = rf_realloc(*list, wanted * bytes);
    if (!moved)
        return check->status = rf_fail(RF_ENOMEM, "no memory for the hazard checker");
    *list = moved;
    *capacity = wanted;
    return 0;
}

static int add_range(struct rf_check *check, uint64_t first, uint64_t last, bool write)
{
    RETURN_IF_ERROR(grow(check, (void **)&check->ranges, check->range_count, &check->range_capacity,
                         sizeof(*check->ranges)));
    check->ranges[check->range_count++] =
        (struct checked_range){first, last, (uint32_t)check->command_count - 1, write};
    return 0;
}

int rf_check_command(struct rf_check *check, const char *name, const struct rf_range *ranges,
                     uint32_t count)
{
    RETURN_IF_ERROR(grow(check, (void **)&check->names, check->command_count,
                         &check->command_capacity, sizeof(*check->names)));
    snprintf(check->names[check->command_count++], RF_NAME_BYTES, "%s", name);
    if (count == 0)
        return add_range(check, 0, UINT64_MAX, true);
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].bytes > 0)
            RETURN_IF_ERROR(add_range(check, ranges[i].address,
                                      ranges[i].address + (ranges[i].bytes - 1), ranges[i].write));
    }
    return 0;
}

void rf_check_barrier(struct rf_check *check)
{
    if (grow(check, (void **)&check->barriers, check->barrier_count, &check->barrier_capacity,
             sizeof(*check->barriers)) == 0)
        check->barriers[check->barrier_count++] = check->range_count;
}

static int by_first(const void *a, const void *b)
{
    const struct checked_range *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->command < y->command ? -1 : x->command > y->command;
}

/* Checks the commands between two barriers; counts conflicts and keeps the first one. */
static void verify_between(struct checked_range *ranges, size_t count, uint64_t *conflicts,
                           struct checked_range found[2])
{
    qsort(ranges, count, sizeof(*ranges), by_first);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count && ranges[j].first <= ranges[i].last; j++) {
            if (ranges[i].command == ranges[j].command || !(ranges[i].write || ranges[j].write))
                continue;
            if ((*conflicts)++ == 0) {
                bool swap = ranges[j].command < ranges[i].command;
                found[0] = ranges[swap ? j : i];
                found[1] = ranges[swap ? i : j];
            }
        }
    }
}

int rf_check_verify(struct rf_check *check, const char *stream, uint64_t *conflicts)
{
    uint64_t count = 0;
    struct checked_range found[2] = {{0}};
    size_t from = 0;
    for (size_t i = 0; i <= check->barrier_count; i++) {
        size_t to = i < check->barrier_count ? check->barriers[i] : check->range_count;
        verify_between(check->ranges + from, to - from, &count, found);
        from = to;
    }
    int rc = check->status;
    if (count > 0) {
        *conflicts += count;
        rc = rf_fail(RF_EDEVICE,
                     "stream %s: %s (command %u) %s what %s (command %u) %s, at address 0x%llx, "
                     "and there is no barrier between them",
                     stream, check->names[found[1].command], found[1].command,
                     found[1].write ? "writes" : "reads", check->names[found[0].command],
                     found[0].command, found[0].write ? "writes" : "reads",
                     (unsigned long long)(found[0].first > found[1].first ? found[0].first
                                                                          : found[1].first));
    }
    check->range_count = check->command_count = check->barrier_count = 0;
    check->status = 0;
    return rc;
}
