/* SPDX-License-Identifier: MIT
 *
 * A checksum for messages: CRC-32C (Castagnoli et al. 1993) over four interleaved lanes, so that it
 * is as fast as memory on processors with an instruction for it (SSE 4.2). Other processors compute
 * the same value with tables.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

enum { LANES = 4, LEAST = LANES * 32 };
#define POLYNOMIAL 0x82f63b78u /* bits reversed */

static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
}

static uint64_t load64(const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint32_t plain_word(uint32_t crc, uint64_t word)
{
    word ^= crc;
    crc = 0;
    for (int i = 0; i < 8; i++)
        crc ^= tables[7 - i][word >> (8 * i) & 0xff];
    return crc;
}

/* Processes whole words of each lane. The lanes are contiguous, one after the other. */
static void plain_lanes(uint32_t crc[LANES], const unsigned char *data, size_t lane_bytes)
{
    for (int lane = 0; lane < LANES; lane++)
        for (size_t i = 0; i < lane_bytes; i += 8)
            crc[lane] = plain_word(crc[lane], load64(data + (size_t)lane * lane_bytes + i));
}

static uint32_t plain_bytes(uint32_t crc, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        crc = crc >> 8 ^ tables[0][(crc ^ data[i]) & 0xff];
    return crc;
}

#if defined(__x86_64__)
static bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static void
quick_lanes(uint32_t crc[LANES], const unsigned char *data, size_t lane_bytes)
{
    uint64_t a = crc[0], b = crc[1], c = crc[2], d = crc[3];
    for (size_t i = 0; i < lane_bytes; i += 8) {
        a = _mm_crc32_u64(a, load64(data + i));
        b = _mm_crc32_u64(b, load64(data + lane_bytes + i));
        c = _mm_crc32_u64(c, load64(data + 2 * lane_bytes + i));
        d = _mm_crc32_u64(d, load64(data + 3 * lane_bytes + i));
    }
    crc[0] = (uint32_t)a, crc[1] = (uint32_t)b, crc[2] = (uint32_t)c, crc[3] = (uint32_t)d;
}

__attribute__((target("sse4.2"))) static uint32_t
quick_bytes(uint32_t crc, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        crc = _mm_crc32_u8(crc, data[i]);
    return crc;
}
#else
#define quick_lanes plain_lanes
#define quick_bytes plain_bytes
static bool has_instruction(void)
{
    return false;
}
#endif

uint32_t rf_checksum_by(bool quick, const void *data, size_t bytes, uint32_t seed)
{
    const unsigned char *at = data;
    uint32_t crc = ~seed;
    quick = quick && has_instruction();
    if (!quick)
        pthread_once(&tables_once, make_tables);
    if (bytes >= LEAST) {
        uint32_t lanes[LANES] = {crc, ~crc, crc ^ 0x55555555u, crc ^ 0xaaaaaaaau};
        size_t lane_bytes = bytes / LANES / 8 * 8;
        (quick ? quick_lanes : plain_lanes)(lanes, at, lane_bytes);
        at += LANES * lane_bytes;
        bytes -= LANES * lane_bytes;
        unsigned char sums[4 * LANES];
        for (int i = 0; i < 4 * LANES; i++)
            sums[i] = (unsigned char)(lanes[i / 4] >> (8 * (i % 4)));
        crc = (quick ? quick_bytes : plain_bytes)(crc, sums, sizeof(sums));
    }
    return ~(quick ? quick_bytes : plain_bytes)(crc, at, bytes);
}

uint32_t rf_checksum(const void *data, size_t bytes, uint32_t seed)
{
    return rf_checksum_by(true, data, bytes, seed);
}
