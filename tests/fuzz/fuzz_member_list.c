/* SPDX-License-Identifier: MIT
 *
 * The member list of a recovery, as a survivor reads it: the first bytes choose its rank, the
 * number of ranks and their endpoints, the rest are the leader's bytes.
 */
#include "fuzz.h"
#include "transport/bootstrap/handshake.h"
#include "transport/control/member_list.h"

enum { MOST = 40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int endpoints[MOST], members[MOST], count = 0, index = 0;
    if (size < 4)
        return 0;
    const int ranks = 1 + data[0] % MOST, own = data[1] % ranks, step = 1 + data[2] % 5;
    for (int r = 0; r < ranks; r++)
        endpoints[r] = r * step + data[3] % 7;
    const struct rf_member_space space = {.endpoint_index = data[2] & 0x80 ? NULL : endpoints,
                                          .size = ranks,
                                          .endpoint_count = ranks * step + 7};
    data += 4, size -= 4;
    uint8_t *bytes = malloc(size ? size : 1); /* ends where the list ends */
    memcpy(bytes, data, size);
    if (rf_member_list_read(&space, own, bytes, size, members, &count, &index) == 0) {
        uint8_t again[RF_JOB_BYTES + 4 * MOST];
        REQUIRE(count >= 2 && count <= ranks && index >= 1 && index < count);
        REQUIRE(members[index] == own);
        for (int i = 0; i < count; i++)
            REQUIRE(members[i] >= 0 && members[i] < ranks &&
                    (i == 0 || members[i] > members[i - 1]));
        rf_member_list_write(&space, bytes, members, count, again);
        REQUIRE(rf_member_list_bytes(count) == size && memcmp(again, bytes, size) == 0);
    }
    free(bytes);
    return 0;
}
