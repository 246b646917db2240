/* SPDX-License-Identifier: MIT
 *
 * Macros for the blocks of push constants in this folder. Each file is one block and is read by
 * both sides: by the kernel (GLSL, `pc.items`) and by its launcher in src/ops (C, `struct
 * rf_push_NAME`). A block is at most 128 bytes, which every device has. Members have the same
 * offsets on both sides, since word64 and uvec2 are aligned to 8 bytes and all else to 4.
 *
 *   word64 a;           an address, or another number of 64 bits (GLSL: uvec2, low word first)
 *   TEXELS_2(a, b)      first texels of views, a_first and b_first; in C an array `first`
 *   STRIDES(a)          a_batch, a_row, a_head; in C an array `a_strides` (rf_heads_strides)
 *   OPERANDS_8(all, ...) addresses by name; in C an array `all`
 *   DIGITS_OR_2(a, b)   DIGITS, or in the other builds two word64; in C a union with `more`
 *   DIGITS              last, of builds that write by whole subgroups (common.glsl); in C `digits`
 */
#ifndef RF_PUSH_H
#define RF_PUSH_H

#ifdef __STDC__
#include <stddef.h>
#include <stdint.h>
typedef uint32_t uint;
typedef uint64_t word64;
typedef struct {
    _Alignas(8) uint32_t x;
    uint32_t y;
} uvec2;
#define PUSH_BEGIN(name) struct rf_push_##name {
#define PUSH_END(name)                                                                             \
    unsigned char end[];                                                                           \
    }                                                                                              \
    ;                                                                                              \
    _Static_assert(sizeof(struct rf_push_##name) <= 128, "devices need not have more");
/* The size of a block without padding after its last member: padding has no defined value, so
 * recordings of equal launches would differ. */
#define RF_PUSH_BYTES(push) ((uint32_t)offsetof(__typeof__(push), end))
#define TEXELS_1(a) uint32_t first[1];
#define TEXELS_2(a, b) uint32_t first[2];
#define TEXELS_3(a, b, c) uint32_t first[3];
#define TEXELS_4(a, b, c, d) uint32_t first[4];
#define STRIDES(a) uint32_t a##_strides[3];
#define DIGITS uint32_t digits[4];
#define DIGITS_OR_2(a, b)                                                                          \
    union {                                                                                        \
        uint32_t digits[4];                                                                        \
        word64 more[2];                                                                            \
    };
#define OPERANDS_8(all, a, b, c, d, e, f, g, h) word64 all[8];

#else
#define word64 uvec2
#define PUSH_BEGIN(name) layout(push_constant) uniform Push {
#define PUSH_END(name)                                                                             \
    }                                                                                              \
    pc;
#define TEXELS_1(a) uint a##_first;
#define TEXELS_2(a, b) uint a##_first, b##_first;
#define TEXELS_3(a, b, c) uint a##_first, b##_first, c##_first;
#define TEXELS_4(a, b, c, d) uint a##_first, b##_first, c##_first, d##_first;
#define STRIDES(a) uint a##_batch, a##_row, a##_head;
#define OPERANDS_8(all, a, b, c, d, e, f, g, h) word64 a, b, c, d, e, f, g, h;
#endif

#endif
