/* SPDX-License-Identifier: MIT
 *
 * The member list of a recovered job: its name and its ranks, by their endpoints
 * (recovery_listener.h). The leader of a recovery sends it to the others. Used by survivors.c.
 * Reads no socket.
 */
#ifndef RF_TRANSPORT_MEMBER_LIST_H
#define RF_TRANSPORT_MEMBER_LIST_H

#include <stddef.h>
#include <stdint.h>

/* The possible members: `size` ranks of the broken job. Rank r has endpoint endpoint_index[r]
 * (NULL: endpoint r) of `endpoint_count`. */
struct rf_member_space {
    const int *endpoint_index;
    int size, endpoint_count;
};

size_t rf_member_list_bytes(int count);

/* members: ranks of the broken job. */
void rf_member_list_write(const struct rf_member_space *space, const uint8_t *job,
                          const int *members, int count, uint8_t *out);

/* For rank `own`: members (at least `size` entries) receives the members in rank order, *index the
 * place of this rank among them, never 0. RF_ECORRUPT: not a member list. Pure. */
int rf_member_list_read(const struct rf_member_space *space, int own, const uint8_t *bytes,
                        size_t length, int *members, int *count, int *index);

#endif
