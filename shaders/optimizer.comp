#version 450
/* SPDX-License-Identifier: MIT
 *
 * One optimizer update of a flat buffer, in place. Every operation is rounded on its own (precise),
 * so an element's result does not depend on where it lies.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "step_scalars.glsl"

layout(push_constant) uniform Push {
    uvec2 param, grad, m, v, decay, norm, scalars;
    uint items;
    float beta1, beta2;
    float rest1, rest2; /* 1 - beta, rounded once */
    float eps, weight_decay;
} pc;

void main()
{
    uint index = flat_index();
    uint item = min(index, pc.items - 1);
    StepScalars s = StepScalars(pc.scalars);
    float lr = s.lr, factor = Floats(pc.norm).at[1];
    float decays = Ints(pc.decay).at[item / (64 / ITEM_ELEMENTS)] != 0 ? 1.0 : 0.0;
    precise float shrink = lr * pc.weight_decay * decays;
    precise ITEM g = load_item(pc.grad, item) * factor;
    precise ITEM p = load_item(pc.param, item);
    p = p - shrink * p;
#if KIND == KIND_ADAMW
    precise ITEM m = pc.beta1 * load_item(pc.m, item) + pc.rest1 * g;
    precise ITEM v = pc.beta2 * load_item(pc.v, item) + pc.rest2 * (g * g);
    precise ITEM root = sqrt(v / s.bias2) + pc.eps;
    p = p - lr * ((m / s.bias1) / root);
    if (index < pc.items) {
        store_item(pc.m, item, m);
        store_item(pc.v, item, v);
        store_item(pc.param, item, p);
    }
#else
    p = p - lr * g;
    if (index < pc.items)
        store_item(pc.param, item, p);
#endif
}
