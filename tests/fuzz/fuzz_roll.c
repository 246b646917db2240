/* SPDX-License-Identifier: MIT
 *
 * The roll of a shrink, as a survivor reads it: the first bytes say which rank of how many it is
 * and how they sit, the rest is what has come from the leader.
 */
#include "fuzz.h"
#include "transport/bootstrap/handshake.h"
#include "transport/control/roll.h"

enum { MOST = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int seats[MOST], members[MOST], count = 0, place = 0;
    if (size < 4)
        return 0;
    const int ranks = 1 + data[0] % MOST, own = data[1] % ranks, step = 1 + data[2] % 5;
    for (int r = 0; r < ranks; r++)
        seats[r] = r * step + data[3] % 7;
    const struct rf_roll_room room = {
        .seats = data[2] & 0x80 ? NULL : seats, .size = ranks, .seat_count = ranks * step + 7};
    data += 4, size -= 4;
    uint8_t *bytes = malloc(size ? size : 1); /* ends where the roll ends */
    memcpy(bytes, data, size);
    if (rf_roll_read(&room, own, bytes, size, members, &count, &place) == 0) {
        uint8_t again[RF_JOB_BYTES + 4 * MOST];
        REQUIRE(count >= 2 && count <= ranks && place >= 1 && place < count);
        REQUIRE(members[place] == own);
        for (int i = 0; i < count; i++)
            REQUIRE(members[i] >= 0 && members[i] < ranks &&
                    (i == 0 || members[i] > members[i - 1]));
        rf_roll_write(&room, bytes, members, count, again);
        REQUIRE(rf_roll_bytes(count) == size && memcmp(again, bytes, size) == 0);
    }
    free(bytes);
    return 0;
}
