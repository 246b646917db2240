#version 450
/* SPDX-License-Identifier: MIT
 *
 * From the sum of squares of the raw gradients: their norm after the division by tokens, and the
 * factor that the optimizer multiplies gradients by. One lane.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "step_scalars.glsl"

layout(push_constant) uniform Push {
    uvec2 norm, sum_squares, scalars;
} pc;

void main()
{
    StepScalars s = StepScalars(pc.scalars);
    float inv_tokens = s.inv_tokens, clip = s.clip;
    precise float norm = sqrt(Floats(pc.sum_squares).at[0]) * inv_tokens;
    precise float ratio = clip / (norm + 1e-6);
    float coefficient = clip > 0.0 && ratio < 1.0 ? ratio : 1.0;
    precise float factor = coefficient * inv_tokens;
    if (flat_index() == 0) {
        Floats(pc.norm).at[0] = norm;
        Floats(pc.norm).at[1] = factor;
    }
}
