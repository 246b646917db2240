#version 450
/* SPDX-License-Identifier: MIT
 *
 * One pass of a stable counting sort of rows by a digit of their token (radix sort, least digit
 * first), without atomics, in three dispatches chosen by STAGE:
 *   0  an invocation counts the digits of its block of rows: counts[block][digit], zero before
 *   1  one workgroup computes places from counts: smaller digits first, then earlier blocks
 *   2  an invocation moves the rows of its block to their places, in order
 * PART: sorts by table_row_of (embedding_backward.comp) instead of tokens.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint PART = 0;

#include "push/embedding_sort.h"

uint row_at(uint place)
{
    uint row = Uints(readable(pc.from, pc.tokens)).at[place];
    return pc.from == uvec2(0) ? place : row;
}
uint digit_of(uint row)
{
    uint token = Uints(pc.tokens).at[row];
    token = token < pc.vocabulary ? token : 0;
    if (PART != 0)
        token = min(token - pc.first_token, pc.table_rows);
    return (token >> pc.shift) & (pc.digits - 1);
}

#if STAGE == 1
shared uint totals[128];

void main()
{
    uint lane = gl_LocalInvocationID.x, each = pc.digits / gl_WorkGroupSize.x;
    uint first = lane * each, digits = pc.digits, blocks = pc.blocks, total = 0;
    Uints counts = Uints(pc.counts);
    for (uint d = first; d < first + each; d++)
        for (uint b = 0; b < blocks; b++) {
            uint count = counts.at[b * digits + d];
            counts.at[b * digits + d] = total;
            total += count;
        }
    totals[lane] = total;
    barrier();
    uint base = 0;
    for (uint k = 0; k < lane; k++)
        base += totals[k];
    for (uint d = first; d < first + each; d++)
        for (uint b = 0; b < blocks; b++)
            counts.at[b * digits + d] += base;
}
#else
void main()
{
    uint block = flat_index();
    uint begin = min(block, pc.blocks) * pc.block_rows, counts_at = block * pc.digits;
    uint end = block < pc.blocks ? min(begin + pc.block_rows, pc.rows) : begin;
    Uints counts = Uints(pc.counts);
    for (uint place = begin; place < end; place++) {
        uint row = row_at(place), slot = counts_at + digit_of(row);
        uint at = counts.at[slot];
        counts.at[slot] = at + 1;
#if STAGE == 2
        Uints(pc.to).at[at] = row;
#endif
    }
}
#endif
