/* SPDX-License-Identifier: MIT
 *
 * Decides whether a barrier is needed: tracks the ranges accessed since the last one, and whether a
 * new launch conflicts with them (read after write, write after read, write after write). Called
 * for every launch, so it must be fast. check.c verifies it independently.
 */
#include "internal.h"

static bool overlap(const struct rf_range *a, const struct rf_range *b)
{
    /* This form does not overflow for a range up to the end of the address space. */
    return a->address < b->address ? b->address - a->address < a->bytes
                                   : a->address - b->address < b->bytes;
}

bool rf_track_conflicts(const struct rf_track *track, const struct rf_range *ranges, uint32_t count)
{
    if (track->everything)
        return true;
    if (count == 0)
        return track->count > 0;
    if (track->count + count > RF_TRACK_CAPACITY)
        return true;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < track->count; j++) {
            if ((ranges[i].write || track->touched[j].write) && ranges[i].bytes &&
                overlap(&ranges[i], &track->touched[j]))
                return true;
        }
    }
    return false;
}

void rf_track_add(struct rf_track *track, const struct rf_range *ranges, uint32_t count)
{
    if (count == 0 || count > RF_TRACK_CAPACITY) {
        track->everything = true;
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        bool known = ranges[i].bytes == 0;
        /* Without this check, launches that share an input would fill the list with it. */
        for (uint32_t j = 0; j < track->count && !known; j++) {
            struct rf_range *t = &track->touched[j];
            known = t->address == ranges[i].address && t->bytes == ranges[i].bytes &&
                    t->write == ranges[i].write;
        }
        if (!known)
            track->touched[track->count++] = ranges[i];
    }
}
