#version 450
/* SPDX-License-Identifier: MIT
 *
 * Chains the rows that hold the same token, in row order: next[i] = the next row with the token of
 * row i, or END; has_previous[next[i]] = 1 (zero before). next is one to one, so no two
 * lanes write the same word and no atomics are needed. A lane stops at the first match.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uvec2 tokens, next, has_previous;
    uint rows, vocabulary;
} pc;

const uint END = 0xffffffffu;

uint token_of(uint row)
{
    uint token = Uints(pc.tokens).at[row];
    return token < pc.vocabulary ? token : 0;
}

void main()
{
    uint index = flat_index();
    uint rows = pc.rows;
    uint row = min(index, rows - 1);
    uint mine = token_of(row);
    uint found = END;
    /* Four at a time; the nearest match is tested last, so it wins. */
    for (uint j = row + 1; j < rows && found == END; j += 4) {
        uint last = rows - 1;
        uint a = token_of(j), b = token_of(min(j + 1, last));
        uint c = token_of(min(j + 2, last)), d = token_of(min(j + 3, last));
        found = d == mine ? min(j + 3, last) : found;
        found = c == mine ? min(j + 2, last) : found;
        found = b == mine ? min(j + 1, last) : found;
        found = a == mine ? j : found;
    }
    if (index < rows) {
        Uints(pc.next).at[row] = found;
        if (found != END)
            Uints(pc.has_previous).at[found] = 1;
    }
}
