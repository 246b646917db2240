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
    uint param_first, grad_first, m_first, v_first;
} pc;
VIEW(0, param)
VIEW(1, grad)
VIEW(2, m)
VIEW(3, v)

/* Neighbours per lane: with views one decay word serves them all; else lanes go side by side. */
#if VIEWS
const uint PER_LANE = 4;
#else
const uint PER_LANE = 1;
#endif

void main()
{
    uint first = flat_index() * PER_LANE;
    StepScalars s = StepScalars(pc.scalars);
    float lr = s.lr, factor = Floats(pc.norm).at[1], bias1 = s.bias1, bias2 = s.bias2;
    uint block = min(first, pc.items - 1) / (64 / ITEM_ELEMENTS);
    float decays = Ints(pc.decay).at[block] != 0 ? 1.0 : 0.0;
    precise float shrink = lr * pc.weight_decay * decays;
    [[unroll]] for (uint k = 0; k < PER_LANE; k++) {
        uint item = min(first + k, pc.items - 1);
        precise ITEM g = load_item(FROM(grad), item) * factor;
        precise ITEM p = load_item(FROM(param), item);
        p = p - shrink * p;
#if KIND == KIND_ADAMW
        precise ITEM m = pc.beta1 * load_item(FROM(m), item) + pc.rest1 * g;
        precise ITEM v = pc.beta2 * load_item(FROM(v), item) + pc.rest2 * (g * g);
        precise ITEM root = sqrt(v / bias2) + pc.eps;
        p = p - lr * ((m / bias1) / root);
        if (first + k < pc.items) {
            store_item(pc.m, item, m);
            store_item(pc.v, item, v);
            store_item(pc.param, item, p);
        }
#else
        p = p - lr * g;
        if (first + k < pc.items)
            store_item(pc.param, item, p);
#endif
    }
}
