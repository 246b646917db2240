/* SPDX-License-Identifier: MIT
 *
 * Copies that are larger than the caches. Stores that bypass them save reading what is overwritten,
 * and leave in them what others will read.
 */
#include "base.h"

#if defined(__SSE2__)
#include <emmintrin.h>

void rf_copy_bytes(void *to, const void *from, size_t bytes, size_t whole)
{
    unsigned char *out = to;
    const unsigned char *in = from;
    size_t head = (64 - (uintptr_t)out % 64) % 64;
    if (whole < RF_PAST_CACHES || bytes < 4096) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(out, in, head);
    size_t i = head;
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
    _mm_sfence(); /* before anybody is told that the data are there */
}
#else
void rf_copy_bytes(void *to, const void *from, size_t bytes, size_t whole)
{
    memcpy(to, from, bytes);
}
#endif
