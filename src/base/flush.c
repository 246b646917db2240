/* SPDX-License-Identifier: MIT
 *
 * Arithmetic that treats subnormal numbers as 0. In a file of its own, so that no compiler moves
 * arithmetic across the change of the processor's mode.
 */
#include "base.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { FLUSH = 0x8040 }; /* FTZ, of results, and DAZ, of operands */

bool rf_can_flush(void)
{
    return true;
}

uint64_t rf_flush_begin(bool flush)
{
    const uint32_t before = flush ? _mm_getcsr() : 0;
    if (flush)
        _mm_setcsr(before | FLUSH);
    return before;
}

void rf_flush_end(bool flush, uint64_t before)
{
    if (flush)
        _mm_setcsr((uint32_t)before);
}
#elif defined(__aarch64__)
#define FLUSH (UINT64_C(1) << 24) /* FZ, of operands and results in f32 and f64 */

bool rf_can_flush(void)
{
    return true;
}

uint64_t rf_flush_begin(bool flush)
{
    uint64_t before = 0;
    if (flush) {
        __asm__ volatile("mrs %0, fpcr" : "=r"(before));
        __asm__ volatile("msr fpcr, %0" : : "r"(before | FLUSH) : "memory");
    }
    return before;
}

void rf_flush_end(bool flush, uint64_t before)
{
    if (flush)
        __asm__ volatile("msr fpcr, %0" : : "r"(before) : "memory");
}
#else
bool rf_can_flush(void)
{
    return false;
}

uint64_t rf_flush_begin(bool flush)
{
    (void)flush;
    return 0;
}

void rf_flush_end(bool flush, uint64_t before)
{
    (void)flush;
    (void)before;
}
#endif
