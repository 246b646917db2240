/* SPDX-License-Identifier: MIT
 *
 * Short messages: every rank sends its whole input to every other, and each folds for itself, in
 * one round. Each chunk is folded in the very order in which a ring would have folded it, so the
 * bits do not depend on the size. Called by table.c.
 */
#include "sched.h"

#include "../base/base.h"

/* Sends IN to all and receives every other rank's; the result joins all of them. */
static uint32_t exchange(struct rf_sched *sched, const struct rf_coll_desc *desc,
                         struct rf_operand *places, size_t bytes)
{
    uint32_t join = rf_sched_join(sched);
    for (int distance = 1; distance < desc->ranks; distance++) {
        int from = (desc->rank + distance) % desc->ranks;
        int to = (desc->rank - distance + desc->ranks) % desc->ranks;
        rf_sched_dep(sched, join, rf_sched_recv(sched, from, 0, places[from], bytes));
        rf_sched_dep(sched, join, rf_sched_send(sched, to, 0, rf_in(0), bytes));
    }
    return join;
}

static void fold_chunk(struct rf_sched *sched, const struct rf_coll_desc *desc,
                       struct rf_operand *operands, const struct rf_operand *places,
                       struct rf_piece piece, int start, uint32_t after)
{
    for (int i = 0; i < desc->ranks; i++) {
        operands[i] = places[(start + i) % desc->ranks];
        operands[i].offset += piece.offset;
    }
    uint32_t fold = rf_sched_fold(sched, rf_out(piece.offset), operands, (uint32_t)desc->ranks,
                                  piece.bytes, desc->order == RF_ORDER_TREE, desc->redop == RF_AVG);
    rf_sched_dep(sched, fold, after);
}

/* The folds wait for the sends as well: OUT may be IN. */
void rf_build_flat_all_reduce(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t bytes = desc->count * sched->element_bytes;
    struct rf_operand *places =
        rf_sched_scratch(sched, 2 * (size_t)desc->ranks, sizeof(struct rf_operand));
    if (!places)
        return;
    for (int r = 0; r < desc->ranks; r++)
        places[r] = r == desc->rank ? rf_in(0) : rf_tmp(rf_sched_temp(sched, bytes));
    uint32_t all = exchange(sched, desc, places, bytes);
    if (desc->order == RF_ORDER_TREE) {
        fold_chunk(sched, desc, places + desc->ranks, places, (struct rf_piece){0, bytes}, 0, all);
    } else {
        for (int c = 0; c < desc->ranks; c++) {
            struct rf_piece piece = rf_chunk(desc->count, desc->ranks, c, sched->element_bytes);
            if (piece.bytes > 0)
                fold_chunk(sched, desc, places + desc->ranks, places, piece, c, all);
        }
    }
    rf_free(places);
}

void rf_build_flat_all_gather(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t bytes = desc->count * sched->element_bytes;
    struct rf_operand *places =
        rf_sched_scratch(sched, (size_t)desc->ranks, sizeof(struct rf_operand));
    if (!places)
        return;
    for (int r = 0; r < desc->ranks; r++)
        places[r] = rf_out(bytes * (size_t)r);
    exchange(sched, desc, places, bytes);
    rf_sched_copy(sched, places[desc->rank], rf_in(0), bytes);
    rf_free(places);
}
