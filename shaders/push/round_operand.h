/* SPDX-License-Identifier: MIT
 *
 * round_operand.comp.
 */
#include "push.h"

PUSH_BEGIN(round_operand)
    word64 out_, x, most, whole, scalars;
    uint rows, items; /* of the matrix; of a row: quads or elements */
    uint block_rows, block_items, cells; /* cells: blocks of a row of blocks */
    uint strip, strips; /* rows or items of a strip; strips of the matrix */
    uint site, turn; /* of random numbers */
PUSH_END(round_operand)
