/* SPDX-License-Identifier: MIT
 *
 * The instructions of an update, for the pass that writes them after all gradients (update.c) and
 * for the one that writes them piece by piece (in_backward.c).
 */
#ifndef RF_PARALLEL_UPDATE_H
#define RF_PARALLEL_UPDATE_H

#include "../plan/list.h"

/* The host shares losses and token counts. */
void rf_write_loss(struct rf_writer *w);

/* Adds tied uses to the gradients of a piece, or of all (-1): in tree order, in the order of
 * registration. */
void rf_write_ties(struct rf_writer *w, int piece);

/* Adds the gradients that each tensor rank has of its own rows, of a piece or of all (-1). This
 * comes after the sums over micro-batches and ranks, so the bits depend only on the number of
 * tensor ranks. */
void rf_write_tensor_sums(struct rf_writer *w, int piece);

/* Every rank adds the squares of its own chunks. Chunks are the same on any mesh, and all sums of
 * them are exact integers, so the norm is the same, too. The lanes' groups have at most 2^17 ranks
 * in total, so words do not overflow (rf_add_squares). */
void rf_write_partials(struct rf_writer *w);
void rf_write_norm(struct rf_writer *w);

void rf_write_begin_step(struct rf_writer *w);

/* Updates a piece, and gathers it on all ranks at once, unless it is only gathered before use. */
void rf_write_piece_update(struct rf_writer *w, int piece);

#endif
