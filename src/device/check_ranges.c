/* SPDX-License-Identifier: MIT
 *
 * RF_CHECK_RANGES: checks that launches access only the ranges that they declare, from which
 * barriers are derived. Called by launch.c, which in this mode runs each command alone. Declared
 * writes may also be read, and written in part. So a launch is correct if it changes no byte
 * outside of its written ranges, and if its results do not depend on memory outside of its ranges.
 * It runs first on the real memory, then from the same state with zeros outside of its ranges (zero
 * is a valid index), then with NaNs. Memory that other code writes meanwhile, such as a collective,
 * would be attributed to the launch.
 */
#include "check_ranges.h"

/* ---- the device's memory --------------------------------------------------------------------- */

int rf_ranges_open(struct rf_device *device)
{
    long mode = 0;
    RETURN_IF_ERROR(rf_env_int("RF_CHECK_RANGES", 0, &mode));
    if (mode == 0)
        return 0;
    if (!device->info.host_visible)
        return rf_fail(RF_ENOTSUP,
                       "RF_CHECK_RANGES needs device memory that the host can map, and that of %s "
                       "is not; choose a CPU device or unset it",
                       device->info.name);
    struct rf_ranges *r = rf_alloc(sizeof(*r));
    if (!r)
        return rf_fail(RF_ENOMEM, "no memory for the checker of ranges");
    pthread_mutex_init(&r->lock, NULL);
    device->ranges = r;
    return 0;
}

void rf_ranges_close(struct rf_device *device)
{
    struct rf_ranges *r = device->ranges;
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    rf_free(r->images);
    rf_free(r->trials);
    rf_free(r);
    device->ranges = NULL;
}

bool rf_device_checks_ranges(const struct rf_device *device)
{
    return device->ranges != NULL;
}

static int add_image(struct rf_ranges *r, const struct rf_buffer *buffer)
{
    if (r->count == r->capacity) {
        const size_t capacity = r->capacity ? 2 * r->capacity : 16;
        void *moved = rf_realloc(r->images, capacity * sizeof(*r->images));
        if (!moved)
            return rf_fail(RF_ENOMEM, "no memory for the checker of ranges");
        r->images = moved;
        r->capacity = capacity;
    }
    uint8_t *copies = rf_alloc(3 * buffer->bytes);
    if (!copies)
        return rf_fail(RF_ENOMEM, "RF_CHECK_RANGES: no memory for three copies of %llu bytes",
                       (unsigned long long)buffer->bytes);
    r->images[r->count++] = (struct image){
        buffer, {copies, copies + buffer->bytes, copies + 2 * buffer->bytes, buffer->map}};
    return 0;
}

int rf_ranges_add_buffer(const struct rf_buffer *buffer)
{
    struct rf_ranges *r = buffer->device->ranges;
    if (!r)
        return 0;
    pthread_mutex_lock(&r->lock);
    int rc = add_image(r, buffer);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

void rf_ranges_remove_buffer(const struct rf_buffer *buffer)
{
    struct rf_ranges *r = buffer->device->ranges;
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->count; i++)
        if (r->images[i].buffer == buffer) {
            rf_free(r->images[i].copy[BEFORE]);
            r->images[i] = r->images[--r->count];
            break;
        }
    pthread_mutex_unlock(&r->lock);
}

/* ---- one launch ------------------------------------------------------------------------------ */

/* Describes the range that is nearest to an address. */
static void describe_nearest(const struct rf_command *c, uint64_t address, char *out, size_t size)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < c->range_count; i++) {
        const struct rf_range *range = &c->ranges[i];
        const bool above = address >= range->address;
        const uint64_t into = above ? address - range->address : range->address - address;
        const bool in = above && into < range->bytes;
        const uint64_t away = in ? 0 : above ? into - range->bytes + 1 : into;
        if (away >= best)
            continue;
        best = away;
        snprintf(out, size, "%u of %u (%llu bytes, %s), which %s %llu bytes %s", i, c->range_count,
                 (unsigned long long)range->bytes, range->write ? "written" : "read",
                 in      ? "begins"
                 : above ? "ends"
                         : "begins",
                 (unsigned long long)(in ? into : away), in || above ? "before" : "after");
    }
}

static int fail(const struct attempt *a, const struct finding *f)
{
    const struct rf_buffer *buffer = f->image->buffer;
    char nearest[128] = "";
    describe_nearest(a->command, buffer->address + f->offset, nearest, sizeof(nearest));
    return rf_fail(RF_EDEVICE,
                   "stream %s: %s %s byte %llu of a buffer of %llu bytes (%s), which none of its "
                   "%sranges has; declare it: the nearest is range %s it",
                   a->stream->name, a->command->name, f->what == WROTE ? "writes" : "reads",
                   (unsigned long long)f->offset, (unsigned long long)buffer->bytes,
                   rf_category_name(buffer->category), f->what == WROTE ? "written " : "", nearest);
}

static int check(struct rf_ranges *r, const struct attempt *a, const struct declared *d)
{
    struct finding found;
    rf_ranges_copy_all(r, BEFORE, NOW);
    RETURN_IF_ERROR(rf_ranges_run_command(a->stream, a->command));
    rf_ranges_copy_all(r, AFTER, NOW);
    int rc = rf_ranges_judge(r, a, d, &found);
    if (rc == 0 && found.what == READ)
        rc = rf_ranges_find_read(r, a, d, &found);
    if (rc == 0 && found.what != KEPT)
        rc = fail(a, &found);
    if (rc == 0 && r->tries)
        rc = rf_ranges_try(r, a, d);
    rf_ranges_copy_all(r, NOW, AFTER);
    return rc;
}

int rf_ranges_run(struct rf_stream *stream, const struct rf_command *command)
{
    struct rf_ranges *r = stream->device->ranges;
    const struct attempt attempt = {stream, command};
    struct declared declared;
    /* Work that the stream waits for may need the device, so the lock is not held here. */
    RETURN_IF_ERROR(rf_stream_wait(stream));
    pthread_mutex_lock(&r->lock);
    int rc = 0;
    if (command->kernel && command->range_count > 0) {
        rc = rf_ranges_declare(&declared, command->ranges, command->range_count);
        if (rc == 0) {
            rc = check(r, &attempt, &declared);
            rf_ranges_undeclare(&declared);
        }
    } else { /* copies and fills need no check; a launch without ranges may access everything */
        rc = rf_ranges_run_command(stream, command);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}
