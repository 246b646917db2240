/* SPDX-License-Identifier: MIT
 *
 * The roll that the leader of a meeting of survivors calls: the name of the new job and who is in
 * it, by their seats. Used by survivors.c.
 */
#ifndef RF_TRANSPORT_ROLL_H
#define RF_TRANSPORT_ROLL_H

#include <stddef.h>
#include <stdint.h>

/* Who may be in one: `size` ranks of the broken job, rank r at seat seats[r] (NULL: at seat r) of
 * `seat_count`. */
struct rf_roll_room {
    const int *seats;
    int size, seat_count;
};

size_t rf_roll_bytes(int count);
/* members: ranks of the broken job. */
void rf_roll_write(const struct rf_roll_room *room, const uint8_t *job, const int *members,
                   int count, uint8_t *out);
/* For rank `own`: members (room for all) receives the others in their order, *place where in it
 * this rank is, which is never first. RF_ECORRUPT where that makes no sense. Pure. */
int rf_roll_read(const struct rf_roll_room *room, int own, const uint8_t *bytes, size_t length,
                 int *members, int *count, int *place);

#endif
