/* SPDX-License-Identifier: MIT
 *
 * The kinds of operations of layers: a kind is its row, in the file of its subject (layer_call.h).
 */
#include "layer_call.h"

static const struct layer_row none;
const struct layer_row *const layer_rows[LAYER_KINDS] = {[LAYER_END] = &none,
                                                         [LAYER_NORM] = &layer_norm_row,
                                                         [LAYER_IDENTITY] = &layer_identity_row,
                                                         [LAYER_COLUMN_LINEAR] =
                                                             &layer_column_linear_row,
                                                         [LAYER_ROW_LINEAR] = &layer_row_linear_row,
                                                         [LAYER_HEADS] = &layer_heads_row,
                                                         [LAYER_ATTEND] = &layer_attend_row,
                                                         [LAYER_ACT] = &layer_act_row,
                                                         [LAYER_GATE] = &layer_gate_row,
                                                         [LAYER_ADD] = &layer_add_row};
