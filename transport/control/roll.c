/* SPDX-License-Identifier: MIT
 *
 * See roll.h.
 */
#include "roll.h"

#include "../bootstrap/handshake.h"
#include "base/base.h"
#include "frame.h"

static int seat_of(const struct rf_roll_room *room, int rank)
{
    return room->seats ? room->seats[rank] : rank;
}

static int rank_at(const struct rf_roll_room *room, uint32_t seat)
{
    for (int r = 0; seat < (uint32_t)room->seat_count && r < room->size; r++)
        if (seat_of(room, r) == (int)seat)
            return r;
    return -1;
}

size_t rf_roll_bytes(int count)
{
    return RF_JOB_BYTES + 4 * (size_t)count;
}

void rf_roll_write(const struct rf_roll_room *room, const uint8_t *job, const int *members,
                   int count, uint8_t *out)
{
    memcpy(out, job, RF_JOB_BYTES);
    for (int i = 0; i < count; i++)
        rf_put32(out + rf_roll_bytes(i), (uint32_t)seat_of(room, members[i]));
}

int rf_roll_read(const struct rf_roll_room *room, int own, const uint8_t *bytes, size_t length,
                 int *members, int *count, int *place)
{
    if (length < rf_roll_bytes(2) || length > rf_roll_bytes(room->size) ||
        (length - RF_JOB_BYTES) % 4)
        return rf_fail(RF_ECORRUPT, "shrink: a roll of %zu bytes makes no sense", length);
    *count = (int)((length - RF_JOB_BYTES) / 4);
    *place = -1;
    for (int i = 0; i < *count; i++) {
        members[i] = rank_at(room, rf_get32(bytes + rf_roll_bytes(i)));
        if (members[i] < 0 || (i > 0 && members[i] <= members[i - 1]))
            return rf_fail(RF_ECORRUPT, "shrink: a roll names ranks that make no sense");
        if (members[i] == own)
            *place = i;
    }
    if (*place < 1)
        return rf_fail(RF_ECORRUPT, "shrink: a roll without the rank it was sent to");
    return 0;
}
