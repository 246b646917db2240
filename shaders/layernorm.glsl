/* SPDX-License-Identifier: MIT
 *
 * Loads and stores of the norms' tensors; included by layernorm*.comp, after common.glsl. out and
 * dout have the build's type. x and the tensors of its type (residual, sum, dx, gamma, beta) have
 * the build's type, too, unless X_F32=1: then they are f32.
 */
#ifndef X_F32
#define X_F32 0
#endif
#if X_F32
#define load4_x load4_f32
#define load4_within_x load4_within_f32
#define store4_x store4_f32
#define store4_within_x store4_within_f32
#define load_item_x load_item_f32
#define rounded_x(v) (v)
#else
#define load4_x load4
#define load4_within_x load4_within
#define store4_x store4
#define store4_within_x store4_within
#define load_item_x load_item
#define rounded_x rounded
#endif
