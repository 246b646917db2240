/* SPDX-License-Identifier: MIT
 *
 * For tests: whether the checker of ranges detects a wrong declaration. Each range of a launch is
 * halved, shifted by half of its length, and omitted, one at a time, and the launch is judged with
 * that declaration. Launches of a kernel are tried until each mistake was detected once. Called by
 * check_ranges.c.
 */
#include "check_ranges.h"

/* A mistake is abandoned after this many launches in which it was not detected. */
#define MOST_TRIES 12

static int find_trial(struct rf_ranges *r, const struct rf_range_trial *key,
                      struct rf_range_trial **out)
{
    for (size_t i = 0; i < r->trial_count; i++) {
        struct rf_range_trial *t = &r->trials[i];
        if (t->mistake == key->mistake && t->range == key->range &&
            t->range_count == key->range_count && t->write == key->write &&
            strcmp(t->kernel, key->kernel) == 0) {
            *out = t;
            return 0;
        }
    }
    if (r->trial_count == r->trial_capacity) {
        const size_t capacity = r->trial_capacity ? 2 * r->trial_capacity : 256;
        void *moved = rf_realloc(r->trials, capacity * sizeof(*r->trials));
        if (!moved)
            return rf_fail(RF_ENOMEM, "no memory for the checker of ranges");
        r->trials = moved;
        r->trial_capacity = capacity;
    }
    *out = &r->trials[r->trial_count++];
    **out = *key;
    return 0;
}

static bool covers(const struct cover *whole, const struct cover *part)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < part->count; i++) {
        while (k < whole->count && whole->spans[k].end < part->spans[i].end)
            k++;
        if (k == whole->count || whole->spans[k].first > part->spans[i].first)
            return false;
    }
    return true;
}

static struct rf_range alter(struct rf_range range, enum rf_range_mistake mistake)
{
    if (mistake == RF_RANGE_SHIFTED)
        range.address += range.bytes / 2;
    else
        range.bytes = mistake == RF_RANGE_HALVED ? range.bytes / 2 : 0;
    return range;
}

static int try_one(struct rf_ranges *r, const struct attempt *a, const struct declared *d,
                   const struct rf_range *altered, struct rf_range_trial *trial)
{
    struct declared wrong;
    struct finding found;
    RETURN_IF_ERROR(rf_ranges_declare(&wrong, altered, a->command->range_count));
    int rc = 0;
    if (!covers(&wrong.touched, &d->touched) || !covers(&wrong.written, &d->written)) {
        trial->tries++;
        rc = rf_ranges_judge(r, a, &wrong, &found);
        trial->noticed = rc == 0 && found.what != KEPT;
    }
    rf_ranges_undeclare(&wrong);
    return rc;
}

int rf_ranges_try(struct rf_ranges *r, const struct attempt *a, const struct declared *d)
{
    const struct rf_command *c = a->command;
    struct rf_range *altered = rf_alloc(c->range_count * sizeof(*altered));
    if (!altered)
        return rf_fail(RF_ENOMEM, "no memory for the checker of ranges");
    memcpy(altered, c->ranges, c->range_count * sizeof(*altered));
    int rc = 0;
    for (uint32_t i = 0; i < c->range_count * RF_RANGE_MISTAKES && rc == 0; i++) {
        const uint32_t range = i / RF_RANGE_MISTAKES, mistake = i % RF_RANGE_MISTAKES;
        struct rf_range_trial key = {.range = range,
                                     .range_count = c->range_count,
                                     .mistake = mistake,
                                     .write = c->ranges[range].write};
        struct rf_range_trial *trial = NULL;
        snprintf(key.kernel, sizeof(key.kernel), "%s", c->name);
        rc = find_trial(r, &key, &trial);
        if (rc < 0 || trial->noticed || trial->tries == MOST_TRIES)
            continue;
        altered[range] = alter(c->ranges[range], (enum rf_range_mistake)mistake);
        rc = try_one(r, a, d, altered, trial);
        altered[range] = c->ranges[range];
    }
    rf_free(altered);
    return rc;
}

void rf_device_try_ranges(struct rf_device *device)
{
    if (device->ranges)
        device->ranges->tries = true;
}

const struct rf_range_trial *rf_device_range_trials(const struct rf_device *device, size_t *count)
{
    *count = device->ranges ? device->ranges->trial_count : 0;
    return device->ranges ? device->ranges->trials : NULL;
}
