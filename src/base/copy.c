/* SPDX-License-Identifier: MIT
 *
 * Copies of more bytes than the caches hold. Stores that bypass the caches avoid reading the
 * destination, and do not evict data that other code will read. Processors that can store a whole
 * cache line at once do so: four stores of a quarter line took a third longer.
 */
#include "base.h"

enum { LINE = 64 };

#if defined(__SSE2__)
#include <immintrin.h>

/* Copies one cache line to `count` destinations. `out` are aligned to cache lines. */
static void stream_quarters(unsigned char *const *out, int count, size_t offset, const void *from,
                            size_t bytes)
{
    const unsigned char *in = from;
    for (size_t i = 0; i < bytes; i += LINE) {
        __m128i a = _mm_loadu_si128((const __m128i *)(in + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(in + i + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(in + i + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(in + i + 48));
        for (int p = 0; p < count; p++) {
            __m128i *to = (__m128i *)(out[p] + offset + i);
            _mm_stream_si128(to, a);
            _mm_stream_si128(to + 1, b);
            _mm_stream_si128(to + 2, c);
            _mm_stream_si128(to + 3, d);
        }
    }
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void
stream_lines(unsigned char *const *out, int count, size_t offset, const void *from, size_t bytes)
{
    const unsigned char *in = from;
    for (size_t i = 0; i < bytes; i += LINE) {
        __m512i line = _mm512_loadu_si512(in + i);
        for (int p = 0; p < count; p++)
            _mm512_stream_si512((void *)(out[p] + offset + i), line);
    }
}

static void stream(unsigned char *const *out, int count, size_t offset, const void *from,
                   size_t bytes)
{
    if (__builtin_cpu_supports("avx512f"))
        stream_lines(out, count, offset, from, bytes);
    else
        stream_quarters(out, count, offset, from, bytes);
}
#else
#define stream stream_quarters
#endif

void rf_copy_fence(void)
{
    _mm_sfence();
}
#else
static void stream(unsigned char *const *out, int count, size_t offset, const void *from,
                   size_t bytes)
{
    for (int p = 0; p < count; p++)
        memcpy(out[p] + offset, from, bytes);
}

void rf_copy_fence(void)
{
}
#endif

static size_t to_next_line(const unsigned char *address)
{
    return (LINE - (uintptr_t)address % LINE) % LINE;
}

void rf_copy_past(void *to, const void *from, size_t bytes)
{
    unsigned char *out = to;
    const unsigned char *in = from;
    size_t head = to_next_line(out);
    head = head < bytes ? head : bytes;
    size_t lines = (bytes - head) / LINE * LINE;
    memcpy(out, in, head);
    stream(&out, 1, head, in + head, lines);
    memcpy(out + head + lines, in + head + lines, bytes - head - lines);
}

void rf_copy_past_all(unsigned char *const *destinations, int count, size_t offset,
                      const void *from, size_t bytes)
{
    bool on_lines = bytes % LINE == 0;
    for (int p = 0; p < count; p++)
        on_lines = on_lines && to_next_line(destinations[p] + offset) == 0;
    if (on_lines) {
        stream(destinations, count, offset, from, bytes);
        return;
    }
    for (int p = 0; p < count; p++)
        rf_copy_past(destinations[p] + offset, from, bytes);
}

void rf_copy_bytes(void *to, const void *from, size_t bytes, size_t whole)
{
    if (whole < RF_PAST_CACHES) {
        memcpy(to, from, bytes);
        return;
    }
    rf_copy_past(to, from, bytes);
    rf_copy_fence();
}
