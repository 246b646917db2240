/* SPDX-License-Identifier: MIT
 *
 * struct rf_step_scalars of ringforge/ops.h for kernels. Included by the optimizer's kernels.
 */
layout(buffer_reference, std430, buffer_reference_align = 4) buffer StepScalars {
    float lr, inv_tokens, clip, step_;
    uint seed0, seed1;
    float loss_scale;
    uint good_steps, updates, skipped;
    float norm, factor, bias1, bias2, prescale;
};
