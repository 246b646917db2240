#version 450
/* SPDX-License-Identifier: MIT
 *
 * Updates the loss scale after a step: down if the step was skipped, up after `interval` good
 * steps. One invocation.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "step_scalars.glsl"

#include "push/loss_scale.h"

void main()
{
    StepScalars s = StepScalars(pc.scalars);
    float scale = s.loss_scale;
    uint good = s.good_steps + 1;
    bool skipped = s.skipped != 0;
    scale = scale == 0.0 ? 1.0 : scale;
    precise float grown = scale * pc.growth, less = scale * pc.backoff;
    bool grows = good >= pc.interval;
    bool bounded = (floatBitsToUint(grown) & 0x7f800000u) != 0x7f800000u;
    float next = grows && bounded ? grown : scale;
    if (flat_index() == 0) {
        s.loss_scale = skipped ? less : next;
        s.good_steps = skipped || grows ? 0 : good;
    }
}
