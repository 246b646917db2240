/* SPDX-License-Identifier: MIT
 *
 * Rows of teams: TEAM lanes, 32 or 128, of a workgroup of 128 own a row. Lane l has quads l, l +
 * TEAM, ... of it, so the lanes of a subgroup read adjacent memory. Sums of lanes are joined
 * through shared memory in a fixed order, whatever the device's subgroups are. Every lane of a
 * workgroup must call team_sum and team_max, so teams without a row compute the last one again.
 * Included by *_team.comp, after common.glsl; src/ops/pick.c chooses the constants.
 */
layout(constant_id = 1) const uint TEAM = 32;
layout(constant_id = 2) const uint KEEP = 1; /* number of quads that a lane keeps: the first ones */

const uint TEAM_LANES = 128;       /* RF_TEAM_LANES of pick.h */
const uint EIGHTHS = TEAM_LANES / 8; /* sums of eight lanes */

shared vec2 of_lane[TEAM_LANES], of_eight[EIGHTHS];

uint team_lane()
{
    return gl_LocalInvocationID.x % TEAM;
}
/* The team's index in the launch. */
uint team_index()
{
    return flat_group() * (TEAM_LANES / TEAM) + gl_LocalInvocationID.x / TEAM;
}

/* The sum of v over the lanes of a team, for each of them: adjacent eights as a binary tree, then
 * the eights in order. */
vec2 team_sum(vec2 v)
{
    uint lane = gl_LocalInvocationID.x, first = 8 * lane;
    of_lane[lane] = v;
    barrier();
    if (lane < EIGHTHS) {
        precise vec2 part[4];
        [[unroll]] for (uint k = 0; k < 4; k++)
            part[k] = of_lane[first + 2 * k] + of_lane[first + 2 * k + 1];
        precise vec2 eight = (part[0] + part[1]) + (part[2] + part[3]);
        of_eight[lane] = eight;
    }
    barrier();
    uint begin = lane / TEAM * (TEAM / 8);
    precise vec2 total = of_eight[begin];
    [[unroll]] for (uint k = 1; k < TEAM / 8; k++)
        total += of_eight[begin + k];
    return total;
}

/* The largest v of a team's lanes; NaN may be dropped. */
float team_max(float v)
{
    uint lane = gl_LocalInvocationID.x, first = 8 * lane;
    of_lane[lane].x = v;
    barrier();
    if (lane < EIGHTHS) {
        float most = of_lane[first].x;
        [[unroll]] for (uint k = 1; k < 8; k++)
            most = max(most, of_lane[first + k].x);
        of_eight[lane].x = most;
    }
    barrier();
    uint begin = lane / TEAM * (TEAM / 8);
    float most = of_eight[begin].x;
    [[unroll]] for (uint k = 1; k < TEAM / 8; k++)
        most = max(most, of_eight[begin + k].x);
    return most;
}
