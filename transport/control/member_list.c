/* SPDX-License-Identifier: MIT
 *
 * Writing and reading the member list of a recovered job: see member_list.h.
 */
#include "member_list.h"

#include "../bootstrap/handshake.h"
#include "base/base.h"
#include "frame.h"

static int endpoint_index(const struct rf_member_space *space, int rank)
{
    return space->endpoint_index ? space->endpoint_index[rank] : rank;
}

static int rank_of_endpoint(const struct rf_member_space *space, uint32_t index)
{
    for (int r = 0; index < (uint32_t)space->endpoint_count && r < space->size; r++)
        if (endpoint_index(space, r) == (int)index)
            return r;
    return -1;
}

size_t rf_member_list_bytes(int count)
{
    return RF_JOB_BYTES + 4 * (size_t)count;
}

void rf_member_list_write(const struct rf_member_space *space, const uint8_t *job,
                          const int *members, int count, uint8_t *out)
{
    memcpy(out, job, RF_JOB_BYTES);
    for (int i = 0; i < count; i++)
        rf_put32(out + rf_member_list_bytes(i), (uint32_t)endpoint_index(space, members[i]));
}

int rf_member_list_read(const struct rf_member_space *space, int own, const uint8_t *bytes,
                        size_t length, int *members, int *count, int *index)
{
    if (length < rf_member_list_bytes(2) || length > rf_member_list_bytes(space->size) ||
        (length - RF_JOB_BYTES) % 4)
        return rf_fail(RF_ECORRUPT, "shrink: a member list of %zu bytes is invalid", length);
    *count = (int)((length - RF_JOB_BYTES) / 4);
    *index = -1;
    for (int i = 0; i < *count; i++) {
        members[i] = rank_of_endpoint(space, rf_get32(bytes + rf_member_list_bytes(i)));
        if (members[i] < 0 || (i > 0 && members[i] <= members[i - 1]))
            return rf_fail(RF_ECORRUPT, "shrink: a member list names ranks that make no sense");
        if (members[i] == own)
            *index = i;
    }
    if (*index < 1)
        return rf_fail(RF_ECORRUPT, "shrink: a member list without the rank it was sent to");
    return 0;
}
