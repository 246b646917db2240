/* SPDX-License-Identifier: MIT
 *
 * Copies that are larger than the caches. Stores that bypass them save reading what is overwritten,
 * and leave in them what others will read.
 */
#include "base.h"

#if defined(__SSE2__)
#include <emmintrin.h>

void rf_copy_past(void *to, const void *from, size_t bytes)
{
    unsigned char *out = to;
    const unsigned char *in = from;
    size_t head = (64 - (uintptr_t)out % 64) % 64, i = head < bytes ? head : bytes;
    memcpy(out, in, i);
    for (; i + 64 <= bytes; i += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(in + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(in + i + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(in + i + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(in + i + 48));
        _mm_stream_si128((__m128i *)(out + i), a);
        _mm_stream_si128((__m128i *)(out + i + 16), b);
        _mm_stream_si128((__m128i *)(out + i + 32), c);
        _mm_stream_si128((__m128i *)(out + i + 48), d);
    }
    memcpy(out + i, in + i, bytes - i);
}

void rf_copy_fence(void)
{
    _mm_sfence();
}
#else
void rf_copy_past(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void rf_copy_fence(void)
{
}
#endif

void rf_copy_bytes(void *to, const void *from, size_t bytes, size_t whole)
{
    if (whole < RF_PAST_CACHES) {
        memcpy(to, from, bytes);
        return;
    }
    rf_copy_past(to, from, bytes);
    rf_copy_fence();
}
